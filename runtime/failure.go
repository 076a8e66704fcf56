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

// An Error reports a command that did not end as wanted, or a call that could not be made. Its text is one line: the
// operation and its code, the peer and the stage that was reached, the field with its values at both ends, the peer's
// message, and the remedy.
type Error struct {
	Op   string       // the operation: "put", "get", "close" ...
	Code effects.Code // tells the caller how to react; see package effects
	// Count is the number of failed chunks, or of the objects that Remedy counts, such as pages that have not been
	// released.
	Count int
	// Peer is the peer concerned: host:port, or the name that the peer gives itself. It is empty if no peer was
	// involved.
	Peer        string
	Incarnation effects.Incarnation // the incarnation of that peer; zero if unknown
	Stage       effects.Stage       // the stage that the operation had reached
	// Field is the value that does not fit, named as in the configuration, the call or the message. Ours is its value
	// at this node, or the accepted values. Theirs is its value at the peer, or the value that was given.
	Field, Ours, Theirs string
	PeerMessage         string // the peer's own message: printable, short, and not to be trusted
	// Remedy says how to fix the problem. If it is empty, the text of the error uses the general remedy for Code.
	Remedy string
	// Cause is the context's error if the context ended the command, and the error of Scatter if a fetch Faulted.
	Cause error
}

// Error returns the text of the error in one line.
func (e *Error) Error() string {
	w := effects.Why{Name: e.Peer, Stage: e.Stage, Remedy: e.Remedy}
	w.Field, w.Ours, w.Theirs, w.Said = e.Field, e.Ours, e.Theirs, e.PeerMessage
	s := "runtime: " + e.Op + ": " + e.Code.String()
	if text := w.Text(e.Code); text != "" {
		s += ": " + text
	}
	if e.Cause != nil {
		s += fmt.Sprintf(" (%v)", e.Cause)
	}
	return s
}

// withDetails copies the details that the machine reports beside the code of a failure. The result is e.
func (e *Error) withDetails(w *effects.Why) *Error {
	if w == nil {
		return e
	}
	e.Peer, e.Incarnation, e.Stage = w.PeerName(), w.Peer, w.Stage
	e.Field, e.Ours, e.Theirs, e.PeerMessage = w.Field, w.Ours, w.Theirs, w.Said
	if e.Remedy == "" {
		e.Remedy = w.Remedy
	}
	return e
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is reports whether target is context.DeadlineExceeded and the command expired, no matter which deadline applied, or
// target is context.Canceled and the command was cancelled.
func (e *Error) Is(target error) bool {
	return target == context.DeadlineExceeded && e.Code == effects.Expired || target == context.Canceled &&
		e.Code == effects.Cancelled
}

// CodeOf returns the code of an error of this package. The code is OK for nil, Expired and Cancelled for the errors of
// a context, and Faulted for an unknown error.
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

// openError returns the error of an Open that failed to set up the part of the node named by what; cause says why.
// If the cause is an error of a control transport, the transport's own remedy replaces remedy.
func openError(what, remedy string, cause error) *Error {
	e := &Error{Op: "open", Code: CodeOf(cause), Stage: effects.StageCommand, Field: what, Remedy: remedy, Cause: cause}
	if c := (*control.Error)(nil); errors.As(cause, &c) {
		e.Code, e.Remedy, e.Cause = c.Code, c.Remedy, causeWithoutRemedy{c}
	} else if errors.Is(cause, plane.ErrInvalid) {
		e.Code = effects.Invalid
	}
	return e
}

// causeWithoutRemedy is the error of a control transport without the remedy, for an Error that carries the remedy in a
// separate field.
type causeWithoutRemedy struct{ err *control.Error }

// Error returns one line: what failed, and why.
func (w causeWithoutRemedy) Error() string {
	if w.err.Cause == nil {
		return w.err.What
	}
	return w.err.What + ": " + w.err.Cause.Error()
}

// Unwrap returns the transport's own error.
func (w causeWithoutRemedy) Unwrap() error { return w.err }

// machineConfigError returns the error of an Open with a configuration that the machine rejects.
func machineConfigError(cause error) *Error {
	return &Error{Op: "open", Code: effects.Invalid, Remedy: strings.TrimPrefix(cause.Error(), "rank: ")}
}

// invalidError returns an Error with the code Invalid and the formatted text as the remedy.
func invalidError(op, format string, args ...any) *Error {
	return &Error{Op: op, Code: effects.Invalid, Remedy: fmt.Sprintf(format, args...)}
}
