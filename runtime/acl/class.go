package acl

import "fmt"

// A Class says what a failure means for the caller. A Class is an error itself, so that errors.Is(err, acl.OutOfMemory)
// works.
type Class int

const (
	// Bug is a broken rule of the caller. No action of a peer, a device or a user should cause a Bug.
	Bug Class = iota + 1
	// Config means that the machine's setup does not work. This class occurs when the program starts.
	Config
	// OutOfMemory: no device memory or no pinned host memory is left. Apply backpressure.
	OutOfMemory
	// Exhausted: no streams, events, or room in a stream are left. Apply backpressure.
	Exhausted
	// Timeout: a wait ended before the work did. Nothing is settled: the pages are still in use.
	Timeout
	// Cancelled: work was dropped by an abort. By itself that settles nothing.
	Cancelled
	// Link: a connection or copy engine failed. Everything that runs over this link ends.
	Link
	// Device: the context failed. Destroy the context with all streams.
	Device
	// DeviceLost: the whole device or its data is lost. Everything of the rank ends.
	DeviceLost
	// EngineFailure: the engine's own kernels failed in a context that kvferry shares with the engine.
	EngineFailure
	// Unsupported: this library or chip lacks the function. Use the fallback.
	Unsupported
)

var classNames = map[Class]string{
	Bug: "bug", Config: "configuration", OutOfMemory: "out of memory", Exhausted: "resource exhausted",
	Timeout: "timeout", Cancelled: "cancelled", Link: "link failure", Device: "device failure",
	DeviceLost: "device lost", EngineFailure: "engine failure", Unsupported: "unsupported",
}

func (c Class) Error() string {
	if name, ok := classNames[c]; ok {
		return name
	}
	return fmt.Sprintf("class %d", int(c))
}

// Class returns the class of a code. A code that the table does not have is classified by the first digits.
func (c Code) Class() Class {
	if info, ok := codes[c]; ok {
		return info.class
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
