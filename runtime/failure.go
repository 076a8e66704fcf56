package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/plane"
)

// An Error is a command that did not end as wanted, or a call that could not be made. Its text is one line: what failed
// and how, who the peer is and how far things were, the field with what it is at both ends, what the peer says, what
// helps.
type Error struct {
	Op    string       // what was asked for: "put", "get", "close" ...
	Code  effects.Code // says what to do; see package effects
	Count int          // of chunks that failed, or of what Remedy counts, such as pages that are still out
	// Peer is whom it was about: host:port, or what the peer calls itself. It is empty where nobody else had part in it.
	Peer  string
	Life  effects.Incarnation // of that peer; zero where it is not known
	Stage effects.Stage       // how far things were
	// Field is what does not fit, as the configuration, the call or the message names it. Ours is what it is here, or what
	// would be taken, Theirs what it is at the peer, or what was given.
	Field, Ours, Theirs string
	Said                string // the peer's own words: printable, short, and not to be trusted
	// Remedy says what helps. Where it is empty, the text has what helps with that code.
	Remedy string
	Cause  error // the context's error where that took the command back; of a fetch that Faulted, its Scatter's
}

func (e *Error) Error() string {
	w := effects.Why{Name: e.Peer, Stage: e.Stage, Remedy: e.Remedy}
	w.Field, w.Ours, w.Theirs, w.Said = e.Field, e.Ours, e.Theirs, e.Said
	s := "runtime: " + e.Op + ": " + e.Code.String()
	if text := w.Text(e.Code); text != "" {
		s += ": " + text
	}
	if e.Cause != nil {
		s += fmt.Sprintf(" (%v)", e.Cause)
	}
	return s
}

// because fills in what the machine says of a failure beside its code.
func (e *Error) because(w *effects.Why) *Error {
	if w == nil {
		return e
	}
	e.Peer, e.Life, e.Stage = w.Who(), w.Peer, w.Stage
	e.Field, e.Ours, e.Theirs, e.Said = w.Field, w.Ours, w.Theirs, w.Said
	if e.Remedy == "" {
		e.Remedy = w.Remedy
	}
	return e
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is says that what expired is a context.DeadlineExceeded, whoever set the deadline, and what was cancelled a
// context.Canceled.
func (e *Error) Is(target error) bool {
	return target == context.DeadlineExceeded && e.Code == effects.Expired || target == context.Canceled &&
		e.Code == effects.Cancelled
}

// CodeOf returns the code of an error of this package: OK for nil, and Faulted for what came from
// elsewhere.
func CodeOf(err error) effects.Code {
	var e *Error
	switch {
	case err == nil:
		return effects.OK
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, context.DeadlineExceeded):
		return effects.Expired
	case errors.Is(err, context.Canceled):
		return effects.Cancelled
	}
	return effects.Faulted
}

// openFailed is the error of an Open that could not have what: the cause says why. A control transport that failed has
// the remedy itself; for others it is remedy.
func openFailed(what, remedy string, cause error) *Error {
	e := &Error{Op: "open", Code: CodeOf(cause), Stage: effects.StageCommand, Field: what, Remedy: remedy, Cause: cause}
	if c := (*control.Error)(nil); errors.As(cause, &c) {
		e.Code, e.Remedy, e.Cause = c.Code, c.Remedy, withoutRemedy{c}
	} else if errors.Is(cause, plane.ErrInvalid) {
		e.Code = effects.Invalid
	}
	return e
}

// withoutRemedy is why a control transport could not be made, for an error that has the remedy in its own place.
type withoutRemedy struct{ of *control.Error }

// Error returns one line: what, and why.
func (w withoutRemedy) Error() string {
	if w.of.Cause == nil {
		return w.of.What
	}
	return w.of.What + ": " + w.of.Cause.Error()
}

// Unwrap returns the transport's own error.
func (w withoutRemedy) Unwrap() error { return w.of }

// refused is the error of an Open whose configuration the machine does not take.
func refused(cause error) *Error {
	return &Error{Op: "open", Code: effects.Invalid, Remedy: strings.TrimPrefix(cause.Error(), "rank: ")}
}

func invalid(op, format string, args ...any) *Error {
	return &Error{Op: op, Code: effects.Invalid, Remedy: fmt.Sprintf(format, args...)}
}
