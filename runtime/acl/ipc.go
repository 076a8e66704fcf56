//go:build cgo && linux

package acl

/*
#include <stdlib.h>
#include "calls.h"
*/
import "C"

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// An Export is device memory that admitted processes may import, on the same device. Close the Export after all these
// processes have closed their imports or have ended, and before the memory is closed: the vendor calls any different
// order undefined.
type Export struct {
	memory *Memory
	key    string
	closed atomic.Bool
}

// Export opens a whole allocation of AllocDevice to the processes that AdmitProcess names. Memory can be exported only
// once at a time; the library refuses a second export. On libraries before CANN 8.2 the error is Unsupported.
func (t *Thread) Export(m *Memory) (*Export, error) {
	switch {
	case m.ctx != t.ctx:
		return nil, fmt.Errorf("%w: memory is exported by its own context", ErrWrongContext)
	case m.closed.Load():
		return nil, fmt.Errorf("%w: the memory to export", ErrClosed)
	case !m.isAllocation || m.place != OnDevice:
		return nil, fmt.Errorf("%w: only memory that AllocDevice made is exported", ErrInvalid)
	}
	for _, symbol := range []string{"aclrtIpcMemSetImportPid", "aclrtIpcMemClose"} {
		if !t.lib.HasSymbol(symbol) {
			// Without both functions no process could import the memory, or the export could not be ended.
			return nil, &MissingError{Symbol: symbol, Library: t.lib.info.Library}
		}
	}
	var key [C.ACL_IPC_KEY_SIZE]C.char
	if err := t.callError(C.call_export(t.call, m.address, C.size_t(m.size), &key[0]), "aclrtIpcMemGetExportKey",
		"address=%#x size=%d", m.address, m.size); err != nil {
		return nil, err
	}
	t.ctx.open.exports++
	return &Export{memory: m, key: C.GoStringN(&key[0], C.int(keyLength(key[:])))}, nil
}

func keyLength(key []C.char) int {
	for i, c := range key {
		if c == 0 {
			return i
		}
	}
	return len(key) - 1
}

// Key returns the key by which an admitted process imports the memory. The key alone admits nobody.
func (e *Export) Key() string { return e.key }

// AdmitProcess lets a process import the memory. process is the number that Thread.ProcessNumber returns in that
// process; inside a container it differs from the process id.
func (e *Export) AdmitProcess(t *Thread, process int32) error {
	if err := t.checkOwner(e.memory.ctx, "an export"); err != nil {
		return err
	}
	key := C.CString(e.key)
	defer C.free(unsafe.Pointer(key))
	return t.callError(C.call_admit(t.call, key, C.int32_t(process)), "aclrtIpcMemSetImportPid", "process=%d", process)
}

// Close ends the export. A second Close does nothing.
func (e *Export) Close(t *Thread) error {
	if err := t.checkOwner(e.memory.ctx, "an export"); err != nil {
		return err
	}
	if e.closed.Load() {
		return nil
	}
	if err := t.closeIPC(e.key); err != nil {
		return err
	}
	t.ctx.open.exports--
	e.closed.Store(true)
	return nil
}

func (t *Thread) closeIPC(key string) error {
	text := C.CString(key)
	defer C.free(unsafe.Pointer(text))
	return t.callError(C.call_close_ipc(t.call, text), "aclrtIpcMemClose", "")
}

// Import maps the memory of another process's export, by the key of that export. size is the number of bytes that the
// caller uses, at most the size of the export, which Import cannot check. The caller closes the Memory when no work
// uses it any more.
func (t *Thread) Import(key string, size uint64) (*Memory, error) {
	if size == 0 {
		return nil, fmt.Errorf("%w: an import of 0 bytes", ErrInvalid)
	}
	if !t.lib.HasSymbol("aclrtIpcMemClose") {
		return nil, &MissingError{Symbol: "aclrtIpcMemClose", Library: t.lib.info.Library}
	}
	text := C.CString(key)
	defer C.free(unsafe.Pointer(text))
	m := &Memory{ctx: t.ctx, place: OnDevice, size: size}
	m.freeMemory = func(t *Thread, _ *Memory) error {
		err := t.closeIPC(key)
		if err == nil {
			t.ctx.open.imports--
		}
		return err
	}
	if err := t.callError(C.call_import(t.call, text, &m.address), "aclrtIpcMemImportByKey", "size=%d", size); err != nil {
		return nil, err
	}
	t.ctx.open.imports++
	return m, nil
}

// ProcessNumber returns this process's number as the driver knows it, for Export.AdmitProcess in another process: the
// host's number, even inside a container.
func (t *Thread) ProcessNumber() (int32, error) {
	var process C.int32_t
	if err := t.callError(C.call_process(t.call, &process), "aclrtDeviceGetBareTgid", ""); err != nil {
		return 0, err
	}
	return int32(process), nil
}
