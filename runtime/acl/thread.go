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

// A Thread is the right to make calls in a context. Its holder runs on the operating-system thread that the context is
// current on. Context.Do lends it to one function; if it is used after that, or by another goroutine, its calls are
// refused with ErrStray before they reach the library.
type Thread struct {
	lib   *Library
	ctx   *Context
	call  *C.struct_call
	batch *C.struct_batch // arguments of batched copies; nil before the first
	ended atomic.Bool     // its calls are over; a caller that kept it may still try
}

// bindThread ties the calling goroutine to its thread and makes t the only one to make calls there. It is never undone:
// the goroutine ends while it is locked, so that Go ends the thread, and with it the context's entry in the library's
// thread-local storage, and no other goroutine ever runs there.
func bindThread(lib *Library, ctx *Context) *Thread {
	runtime.LockOSThread()
	t := &Thread{lib: lib, ctx: ctx, call: C.call_new(lib.api, 0)}
	C.call_bind(t.call)
	return t
}

// unbind frees the record of calls. It is the last thing that happens on the thread.
func (t *Thread) unbind() {
	t.ended.Store(true)
	C.call_delete(t.call)
	C.free(unsafe.Pointer(t.batch))
	t.call, t.batch = nil, nil
}

// answer converts the result of a call to an error; nil for success.
func (t *Thread) answer(code C.int, symbol, format string, args ...any) error {
	if code == 0 {
		return nil
	}
	return t.lib.answer(t.call, code, symbol, format, args...)
}

// enter makes an existing context current on the thread.
func (t *Thread) enter(context C.acl_handle) error {
	return t.answer(C.call_set_context(t.call, context), "aclrtSetCurrentContext", "context=%#x", context)
}

// owns refuses an object of another context: the library would report that late, or not at all.
func (t *Thread) owns(ctx *Context, what string) error {
	if t.ctx != ctx {
		return fmt.Errorf("%w: the %s", ErrForeign, what)
	}
	return nil
}
