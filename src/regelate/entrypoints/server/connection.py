"""One connection: uvicorn's protocol, and what it has no limits for.

Seconds for a request's head and for an answer to be taken, bytes and shape of the head, room for the next connection,
an end that does not wait for the client. Whatever is refused here is answered in the house's shape.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from regelate.entrypoints.server.head import Head
from regelate.entrypoints.server.reply import log_access, refused
from regelate.entrypoints.server.room import Awaited, Room
from regelate.errors import InvalidRequest, RegelateError, Unavailable
from regelate.settings.serving import ServeSettings

LINGER_SECONDS = 2.0
LINGER_BYTES = 1024 * 1024
"""What a refused client still sends is read away for so long: closed at once, it would see a reset, not the answer."""

MOST_CRUMBS = 5_000
"""Chunks of a body below 16 bytes. Each costs as much as one of a megabyte, and all others wait meanwhile."""
_CRUMB = re.compile(rb"\r\n0*[1-9a-fA-F](?=\r\n)")
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)


class Connection(H11Protocol):
    """Requests of one connection, one after the other; who does not wait for an answer gets only that one."""

    def __init__(self, *, limits: ServeSettings, room: Room, **of_uvicorn: Any) -> None:
        super().__init__(**of_uvicorn)
        self._limits = limits
        self._room = room
        self._head = Head(limits)
        self._timer: asyncio.TimerHandle | None = None
        self._answer_timer: asyncio.TimerHandle | None = None
        self._thrown_away = 0
        self._chunked = False
        self._crumbs = 0
        self.refused = False

    @property
    def waits(self) -> bool:
        """Say whether nothing is lost by an end: there is no request, or not all of its head."""
        return not self.refused and not self._begun

    @property
    def _begun(self) -> bool:
        """Say whether there is a request that has not got all of its answer."""
        cycle: RequestResponseCycle | None = self.cycle  # uvicorn sets it with the first request
        return cycle is not None and not cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self._time_head()
        if self._room.is_full_of_work:
            self._refuse(busy(f"all {self._limits.max_connections} connections are at work"))
        self.loop.call_later(0, self._come_in)

    def _come_in(self) -> None:
        """Take a place, and make room for it. The loop looks at sockets before timers: what came with the connection
        has been read by now.
        """
        if not self.transport.is_closing():
            self._take_place()
        self._room.thin(self.loop.time())

    def give_way(self) -> None:
        """End for the sake of others; who has sent a part of a request is told so."""
        if self.refused or not (self._begun or self._head):
            self.transport.abort()
            return
        self._refuse(
            InvalidRequest(
                "REQUEST_TIMEOUT",
                "others need the connection, and this request was not complete; send it again, all of it at once",
                status=408,
                retryable=True,
            )
        )
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._room.leaves(self)
        self._stop_timer()
        self._stop_answer_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.refused:
            self._thrown_away += len(data)
            if self._thrown_away > LINGER_BYTES:
                self.transport.abort()
            return
        if self.conn.their_state is h11.IDLE:
            begun = self._gathered(data)
            if begun is not None:
                self._chunked, self._crumbs = _CHUNKED.search(begun) is not None, 0
                super().data_received(begun)
        elif self.conn.their_state is h11.SEND_BODY:
            if not self._is_crumbled(data):
                super().data_received(data)
        else:
            self._end_after_answer()
        if self._begun and self.conn.their_state is not h11.SEND_BODY and self.conn.trailing_data[0]:
            self._end_after_answer()
        self._take_place()

    def _take_place(self) -> None:
        """Tell the room what this connection does now."""
        if self._begun and not self.refused and not self.cycle.more_body:
            self._room.works(self)
        else:
            self._room.waits(self, self._awaited, self.loop.time())

    @property
    def _awaited(self) -> Awaited:
        if self.refused:
            return Awaited.NEXT_REQUEST
        if self._begun or self._head or self.cycle is None:
            return Awaited.WHOLE_REQUEST
        return Awaited.ANSWER_TAKEN if self.flow.write_paused else Awaited.NEXT_REQUEST

    def resume_writing(self) -> None:
        super().resume_writing()
        self._take_place()

    def _is_crumbled(self, data: bytes) -> bool:
        """Refuse a body of very many tiny chunks before the parser takes them one by one."""
        if self._chunked:
            self._crumbs += sum(1 for _ in _CRUMB.finditer(data))
        if self._crumbs <= MOST_CRUMBS:
            return False
        self._refuse(InvalidRequest("INVALID_REQUEST", "the body comes in too many tiny chunks; send larger ones"))
        return True

    def _gathered(self, data: bytes) -> bytes | None:
        self._unset_keepalive_if_required()
        if self._timer is None:
            self._time_head()
        try:
            begun = self._head.take(data)
        except RegelateError as fault:
            self._refuse(fault)
            return None
        if begun is not None:
            self._head = Head(self._limits)
            self._stop_timer()
        return begun

    def _time_head(self) -> None:
        self._timer = self.loop.call_later(self._limits.header_seconds, self._head_is_late)

    def _head_is_late(self) -> None:
        if self._head:
            self._refuse(late("headers", self._limits.header_seconds))
        else:  # it never asked for anything
            self.transport.abort()

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn ends the connection: its answer would be lost
        """Keep the connection for the answer to a request that is complete."""
        if self.refused or self.waits:
            return False
        if self.cycle.more_body:
            self._refuse(InvalidRequest("INVALID_REQUEST", "the body ends before it is complete"))
        else:
            self._end_after_answer()
        return True

    def send_400_response(self, msg: str) -> None:
        """Refuse what h11 does not take."""
        self._refuse(InvalidRequest("INVALID_REQUEST", "this is not an HTTP request that can be read"))

    def _refuse(self, fault: RegelateError) -> None:
        """Answer at once, whatever of the request is there, take no more of it, and end."""
        self._stop_timer()
        self._unset_keepalive_if_required()
        self.refused = True
        begun = self._begun
        if begun:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.transport.is_closing() or (begun and self.cycle.response_started):
            self.transport.abort()
            return
        reply = refused(fault)
        log_access(reply, self.client[0] if self.client else None, None, None, 0.0)
        self._take_place()
        self.transport.write(reply.as_bytes())
        with suppress(OSError):  # the client is gone, and the loop has not heard of it yet
            self.transport.write_eof()
        self.flow.resume_reading()
        self._timer = self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def _end_after_answer(self) -> None:
        self.cycle.keep_alive = False
        if not self.cycle.response_started:
            self.cycle.default_headers = [*self.cycle.default_headers, CLOSE_HEADER]

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._take_place()
        self._stop_answer_timer()
        self._answer_timer = self.loop.call_later(self._limits.answer_seconds, self._abort_unless_taken)

    def _abort_unless_taken(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def shutdown(self) -> None:
        """Begin the end: a request under way is answered first, one that is still being sent is refused."""
        if self.refused:
            return
        if self.waits:
            super().shutdown()
        elif self.cycle.more_body and not self.cycle.response_started:
            self._refuse(busy("the server is stopping"))
        else:
            self._end_after_answer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_answer_timer(self) -> None:
        if self._answer_timer is not None:
            self._answer_timer.cancel()
            self._answer_timer = None


def late(what: str, seconds: float) -> InvalidRequest:
    """Make the 408 of a client that sends too slowly."""
    message = f"the {what} did not arrive within {seconds:g} seconds; send the request again, faster"
    return InvalidRequest("REQUEST_TIMEOUT", message, status=408, retryable=True)


def busy(why: str) -> Unavailable:
    """Make the 503 of a server that has no room."""
    return Unavailable("SERVER_BUSY", f"{why}; send the request again in a moment")
