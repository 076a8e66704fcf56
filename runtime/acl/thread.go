//go:build cgo && linux

package acl

/*
#include <stdlib.h>
#include "calls.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// A Thread is the right to make calls in a context. The holder runs on the operating-system thread that the context is
// current on. Context.Do passes a Thread to one function. A call with the Thread after that function has returned, or
// from another goroutine, is refused with acl.ErrWrongThread before the library is called.
type Thread struct {
	lib   *Library
	ctx   *Context
	call  *C.struct_call
	batch *C.struct_batch // arguments of batched copies; nil before the first
	ended atomic.Bool     // no call is allowed any more; a caller may have kept the Thread
}

// bindThread locks the calling goroutine to its operating-system thread, and makes the returned Thread the only Thread
// that may call the library there. The lock is never undone: the goroutine ends while locked, so that Go ends the
// operating-system thread together with the context's entry in the library's thread-local storage, and no second
// goroutine ever runs there.
func bindThread(lib *Library, ctx *Context) *Thread {
	runtime.LockOSThread()
	t := &Thread{lib: lib, ctx: ctx, call: C.call_new(lib.api, 0)}
	C.call_bind(t.call)
	return t
}

// unbindThread frees the record of calls. Nothing else happens on the thread afterwards.
func (t *Thread) unbindThread() {
	t.ended.Store(true)
	C.call_delete(t.call)
	C.free(unsafe.Pointer(t.batch))
	t.call, t.batch = nil, nil
}

// callError converts the result of a call to an error; nil for success.
func (t *Thread) callError(code C.int, symbol, format string, args ...any) error {
	if code == 0 {
		return nil
	}
	return t.lib.callError(t.call, code, symbol, format, args...)
}

// enterContext makes an existing context current on the thread.
func (t *Thread) enterContext(context C.acl_handle) error {
	return t.callError(C.call_set_context(t.call, context), "aclrtSetCurrentContext", "context=%#x", context)
}

// checkOwner refuses an object of another context: the library would report that late, or not at all.
func (t *Thread) checkOwner(ctx *Context, what string) error {
	if t.ctx != ctx {
		return fmt.Errorf("%w: the %s", ErrWrongContext, what)
	}
	return nil
}
