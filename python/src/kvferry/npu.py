"""The pool of an agent in memory of an Ascend NPU, imported with AscendCL.

AscendCL is the vendor's library. An engine on an NPU has loaded it already, through torch_npu; this module calls it
only for the pool. It never finalizes the library and never resets a device, because both would break the engine.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kvferry.errors import invalid_error, lost_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvferry.errors import Error
    from kvferry.messages import Attached

Bytes = npt.NDArray[np.uint8]

LIBRARY_VARIABLE = "KVFERRY_ASCENDCL"

# The names under which the loader finds it after CANN's set_env.sh.
_LIBRARY_NAMES = ("libascendcl.so", "libacl_rt.so")

# From acl_base.h: aclInit returns it if the library was initialized before.
_ALREADY_INITIALIZED = 100002
# The values of aclrtMemcpyKind.
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3

_P, _N, _I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "aclInit": (ctypes.c_char_p,),
    "aclrtGetDeviceCount": (ctypes.POINTER(ctypes.c_uint32),),
    "aclrtGetPhyDevIdByLogicDevId": (_I, ctypes.POINTER(_I)),
    "aclrtSetDevice": (_I,),
    "aclrtGetCurrentContext": (ctypes.POINTER(_P),),
    "aclrtSetCurrentContext": (_P,),
    "aclrtDeviceGetBareTgid": (ctypes.POINTER(_I),),
    "aclrtIpcMemImportByKey": (ctypes.POINTER(_P), ctypes.c_char_p, ctypes.c_uint64),
    "aclrtIpcMemClose": (ctypes.c_char_p,),
    "aclrtMemcpy": (_P, _N, _P, _N, ctypes.c_int),
    "aclrtMemcpyAsync": (_P, _N, _P, _N, ctypes.c_int, _P),
}


class NPUError(OSError):
    """AscendCL is not available, or one of its calls failed."""


class Library:
    """AscendCL, as loaded into this process."""

    def __init__(self, path: str) -> None:
        """Load and initialize AscendCL; raise NPUError if that fails."""
        self._contexts: dict[int, int] = {}
        try:
            loaded = ctypes.CDLL(path)
        except OSError as error:
            raise NPUError(f"AscendCL cannot be loaded: {error}") from error
        for name, arguments in _FUNCTIONS.items():
            function = getattr(loaded, name, None)
            if function is None:
                raise NPUError(f"{path} has no {name}: CANN 8.2 or later is needed for pools in memory of an NPU")
            function.argtypes, function.restype = arguments, _I
        self._loaded = loaded
        code = loaded.aclInit(None)
        if code not in (0, _ALREADY_INITIALIZED):
            raise NPUError(f"aclInit gave error {code}")

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; raise NPUError with the library's message if it fails."""
        code = getattr(self._loaded, name)(*arguments)
        if code:
            raise NPUError(f"{name} gave error {code}{self._error_text()}")

    def _error_text(self) -> str:
        get_message = getattr(self._loaded, "aclGetRecentErrMsg", None)
        if get_message is None:
            return ""
        get_message.restype = ctypes.c_char_p
        text = get_message()
        return f": {text.decode(errors='replace').strip()}" if text else ""

    def process_number(self) -> int:
        """Return the number of this process in the NPU's driver: that of the host, even in a container."""
        number = _I()
        self.call("aclrtDeviceGetBareTgid", ctypes.byref(number))
        return number.value

    def find_device(self, physical: int) -> int:
        """Return the logical device of a physical NPU of the host."""
        count = ctypes.c_uint32()
        self.call("aclrtGetDeviceCount", ctypes.byref(count))
        for logical in range(count.value):
            is_physical = _I()
            self.call("aclrtGetPhyDevIdByLogicDevId", logical, ctypes.byref(is_physical))
            if is_physical.value == physical:
                return logical
        raise NPUError(
            f"this process does not see NPU {physical} of the host, which has the pool: let both see the same "
            "NPU (ASCEND_RT_VISIBLE_DEVICES)"
        )

    def activate_device(self, logical: int) -> int:
        """Activate a device and return its context: the primary one, which torch_npu's threads use, too."""
        if logical not in self._contexts:
            with self._restored_context():
                self.call("aclrtSetDevice", logical)
                context = _P()
                self.call("aclrtGetCurrentContext", ctypes.byref(context))
            self._contexts[logical] = context.value or 0
        return self._contexts[logical]

    @contextlib.contextmanager
    def in_context(self, context: int) -> Iterator[None]:
        """Switch the calling thread to a context for the length of a block."""
        with self._restored_context():
            self.call("aclrtSetCurrentContext", context)
            yield

    @contextlib.contextmanager
    def _restored_context(self) -> Iterator[None]:
        before = _P()
        if self._loaded.aclrtGetCurrentContext(ctypes.byref(before)):
            before.value = None  # The thread has no context.
        try:
            yield
        finally:
            if before.value:
                self._loaded.aclrtSetCurrentContext(before)


_libraries: dict[str, Library] = {}
_loading = threading.Lock()


def load_library() -> Library:
    """Load AscendCL once: the file that KVFERRY_ASCENDCL names, or the library that the loader finds."""
    configured = os.environ.get(LIBRARY_VARIABLE, "")
    failures: list[str] = []
    with _loading:
        for path in (configured,) if configured else _LIBRARY_NAMES:
            if path in _libraries:
                return _libraries[path]
            try:
                _libraries[path] = Library(path)
            except NPUError as error:
                failures.append(str(error))
            else:
                return _libraries[path]
    raise NPUError(f"{'; '.join(failures)}; source CANN's set_env.sh, or name the file in {LIBRARY_VARIABLE}")


class DeviceBytes:
    """A range of the pool's memory on an NPU: it has an address there, and Python cannot access its content directly.

    A slice of it is a DeviceBytes, too. Copies are complete when read and write return.
    """

    def __init__(self, pool: DevicePool, address: int, size: int, *, writable: bool = True) -> None:
        """Describe a range of memory."""
        self.pool = pool
        self.address = address
        self.nbytes = size
        self.writable = writable

    def __len__(self) -> int:
        """Return the number of bytes."""
        return self.nbytes

    def __getitem__(self, part: slice) -> DeviceBytes:
        """Return a part of the range."""
        begin, end, step = part.indices(self.nbytes)
        if step != 1:
            raise invalid_error(
                "slice", "the step", str(step), "1", "memory of a device can only be sliced contiguously"
            )
        return DeviceBytes(self.pool, self.address + begin, max(0, end - begin), writable=self.writable)

    def read(self) -> Bytes:
        """Return a copy in host memory."""
        content = np.empty(self.nbytes, np.uint8)
        with self.pool.imported() as (lib, context), lib.in_context(context):
            if self.nbytes:
                lib.call("aclrtMemcpy", content.ctypes.data, content.nbytes, self.address, self.nbytes, DEVICE_TO_HOST)
        return content

    def write(self, data: Any) -> None:
        """Copy a buffer of the host to the beginning of the range."""
        content = np.ascontiguousarray(np.frombuffer(memoryview(data).cast("B"), np.uint8))
        self._check_writable(content.nbytes)
        with self.pool.imported() as (lib, context), lib.in_context(context):
            if content.nbytes:
                lib.call("aclrtMemcpy", self.address, self.nbytes, content.ctypes.data, content.nbytes, HOST_TO_DEVICE)

    def enqueue_from(self, address: int, size: int, stream: int, *, on_device: bool) -> None:
        """Enqueue a copy to this range into a stream of the NPU. The caller must synchronize the stream."""
        self._check_writable(size)
        kind = DEVICE_TO_DEVICE if on_device else HOST_TO_DEVICE
        with self.pool.imported() as (lib, context), lib.in_context(context):
            lib.call("aclrtMemcpyAsync", self.address, self.nbytes, address, size, kind, stream)

    def enqueue_to(self, address: int, size: int, stream: int, *, on_device: bool) -> None:
        """Enqueue a copy from this range into a stream of the NPU."""
        kind = DEVICE_TO_DEVICE if on_device else DEVICE_TO_HOST
        with self.pool.imported() as (lib, context), lib.in_context(context):
            lib.call("aclrtMemcpyAsync", address, size, self.address, size, kind, stream)

    def _check_writable(self, size: int) -> None:
        if not self.writable:
            raise invalid_error("write", "the chunk", "read-only", "pages of a reserve", "reserve pages to write to")
        if size > self.nbytes:
            raise invalid_error(
                "write", "data", f"{size} bytes", f"at most {self.nbytes}", "give at most as many bytes as the page has"
            )


class DevicePool:
    """The pages of one incarnation of an agent, in memory of an NPU.

    At the end of the session the import is closed as soon as no copy uses it, because the agent must not free the
    memory before. Later copies raise LostError.
    """

    def __init__(self, info: Attached) -> None:
        """Import the memory. The agent has admitted this process before.

        If it is a second pool beside a file's, its pages are numbered from 0 here.
        """
        if info.device_pages:
            info = replace(info, offset=info.device_offset, pages=info.device_pages)
        self.incarnation = info.life
        self.page_bytes = info.page_bytes
        self.page_count = info.pages
        self.name = f"NPU {info.device}"
        if info.offset + info.pages * info.page_bytes > info.device_bytes:
            raise NPUError(
                f"the pool ends at byte {info.offset + info.pages * info.page_bytes}, its memory at {info.device_bytes}"
            )
        self._key = info.device_key.encode()
        self._library = load_library()
        self._context = self._library.activate_device(self._library.find_device(info.device))
        self._lock = threading.Lock()
        self._users = 0
        self._is_released = False
        address = _P()
        with self._library.in_context(self._context):
            self._library.call("aclrtIpcMemImportByKey", ctypes.byref(address), self._key, 0)
        self._begin = (address.value or 0) + info.offset

    def page(self, number: int, length: int | None = None) -> DeviceBytes:
        """Return the first bytes of a page; by default all its bytes."""
        size = self.page_bytes if length is None else length
        return DeviceBytes(self, self._begin + number * self.page_bytes, size)

    def page_memory(self, number: int, length: int | None = None) -> DeviceBytes:
        """Return the same as page, for compatibility with Pool."""
        return self.page(number, length)

    @contextlib.contextmanager
    def imported(self) -> Iterator[tuple[Library, int]]:
        """Keep the memory imported for the length of a block, and return the library and the context."""
        with self._lock:
            if self._is_released:
                raise lost_error("copy", "the session is over, and the memory was released; treat it as a miss")
            self._users += 1
        try:
            yield self._library, self._context
        finally:
            with self._lock:
                self._users -= 1
                self._close_if_unused()

    def release(self) -> None:
        """Release the memory; see the class."""
        with self._lock:
            if not self._is_released:
                self._is_released = True
                self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._is_released and not self._users:
            with contextlib.suppress(NPUError), self._library.in_context(self._context):
                self._library.call("aclrtIpcMemClose", self._key)


def device_memory_error(op: str, pool: DevicePool) -> Error:
    """Create the error of an operation that needs memory of the host."""
    remedy = "use read and write of a page, or its address in work for the NPU"
    return invalid_error(op, "the pool", f"memory of {pool.name}", "memory of the host", remedy)


def process_number(physical: int) -> int:
    """Return the number of this process in the driver of a physical NPU."""
    found = load_library()
    with found.in_context(found.activate_device(found.find_device(physical))):
        return found.process_number()
