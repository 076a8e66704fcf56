package runtime

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/effects"
)

func TestErrorReadsInOneLine(t *testing.T) {
	why := &effects.Why{Addr: effects.Addr{Host: "10.0.0.7", Port: 7300}, Peer: effects.Incarnation{1},
		Stage: effects.StageHello, Field: "page_bytes", Ours: "4096", Theirs: "8192", Said: "no", Remedy: "agree"}
	for _, c := range []struct {
		err  *Error
		want string
	}{
		{(&Error{Op: "put", Code: effects.Mismatch}).withDetails(why),
			`runtime: put: mismatch: 10.0.0.7:7300, hello: page_bytes is 4096 here, 8192 there; it says "no"; agree`},
		{(&Error{Op: "put", Code: effects.Expired, Cause: context.DeadlineExceeded}).withDetails(nil),
			"runtime: put: expired: retry, or raise the timeout if the peer is well (context deadline exceeded)"},
		{(&Error{Op: "get", Code: effects.NotFound, Remedy: "its own"}).withDetails(why),
			`runtime: get: not_found: 10.0.0.7:7300, hello: page_bytes is 4096 here, 8192 there; it says "no"; its own`},
		{invalidError("put", "%d keys", 3), "runtime: put: invalid: 3 keys"},
		{&Error{Op: "put", Code: effects.Cancelled}, "runtime: put: cancelled"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got\n%s\nwant\n%s", got, c.want)
		}
		if wrapped := fmt.Errorf("outer: %w", c.err); CodeOf(wrapped) != c.err.Code {
			t.Errorf("the code of %v is %v", wrapped, CodeOf(wrapped))
		}
	}
	err := (&Error{Op: "put", Code: effects.Expired}).withDetails(why)
	if !errors.Is(err, context.DeadlineExceeded) || err.Incarnation != why.Peer {
		t.Errorf("%#v", err)
	}
}
