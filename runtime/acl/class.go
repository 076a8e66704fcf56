package acl

import "fmt"

// A Class says what a failure means for who drives the device. It is an error of its own, so that
// errors.Is(err, acl.OutOfMemory) asks for it.
type Class int

const (
	// Bug is a broken rule of ours: nothing that a peer, a device or a user does should cause it.
	Bug Class = iota + 1
	// Config is a machine that cannot work as it is set up; it belongs to the start of the program.
	Config
	// OutOfMemory is no device memory, or no pinned host memory: an outcome that back-pressure handles.
	OutOfMemory
	// Exhausted is out of streams, events, or room in a stream: an outcome too.
	Exhausted
	// Timeout is a wait that ended before the work did. Nothing is settled: the pages are still in use.
	Timeout
	// Cancelled is work given up by an abort. Nothing is settled by that alone.
	Cancelled
	// Link is a failed connection or copy engine: what runs over that link ends.
	Link
	// Device is a failure of the context: destroy it with all its streams.
	Device
	// DeviceLost is the whole device gone, or its data: everything of its rank ends.
	DeviceLost
	// Foreign is the engine's own kernels failing in a context that we share with it.
	Foreign
	// Unsupported is what this library or chip cannot do: take the fallback.
	Unsupported
)

var classNames = map[Class]string{
	Bug: "bug", Config: "configuration", OutOfMemory: "out of memory", Exhausted: "resource exhausted",
	Timeout: "timeout", Cancelled: "cancelled", Link: "link failure", Device: "device failure",
	DeviceLost: "device lost", Foreign: "foreign failure", Unsupported: "unsupported",
}

func (c Class) Error() string {
	if name, ok := classNames[c]; ok {
		return name
	}
	return fmt.Sprintf("class %d", int(c))
}

// Class sorts a code. A code that the tables do not know is sorted by its group of digits.
func (c Code) Class() Class {
	if known, ok := codes[c]; ok {
		return known.class
	}
	switch {
	case c >= 500000 && c < 600000:
		return Device
	case c >= 300000 && c < 400000:
		return OutOfMemory
	case c >= 200000 && c < 300000:
		return Exhausted
	case c >= 100000 && c < 200000:
		return Bug
	}
	return Device
}
