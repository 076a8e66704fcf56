package liar

import "encoding/binary"

// A Step is the part of the protocol at which the liar deviates: the first frame or page of that kind.
type Step string

// Steps of the tcp plane: frames of a link's first connection, and the content of its streams.
const (
	Hello   Step = "hello"
	Welcome Step = "welcome"
	Push    Step = "push"
	Read    Step = "read"
	Cancel  Step = "cancel"
	Done    Step = "done"
	Join    Step = "join"
	Joined  Step = "joined"
	PageOut Step = "page of a push"
	PageIn  Step = "page of a read"
)

// Steps of the plane between NPUs: the messages of its channel about epochs, in addition to hello and welcome.
const (
	Offer  Step = "offer"
	Accept Step = "accept"
	Fenced Step = "fenced"
	Gone   Step = "gone"
)

// Steps that the plane over libnixl has in addition.
const (
	Met  Step = "met"
	Busy Step = "busy"
	Idle Step = "idle"
)

// A Way is how a step deviates.
type Way string

// Ways to deviate.
const (
	Silence   Way = "left out"
	Freeze    Way = "nothing from there on"
	Garbage   Way = "as garbage"
	Truncated Way = "cut short, and on"
	CutOff    Way = "cut off by the end of the connection"
	Twice     Way = "twice"
	Late      Way = "after the next one"
	Number    Way = "with another number"
	Largest   Way = "with the largest numbers"
	TooLong   Way = "longer than allowed"
	Closed    Way = "replaced by the end of the connection"
	Trailing  Way = "with bytes behind it"
	Early     Way = "answered with ok at once"
)

// Ways to deviate in the files that are passed beside a hello or a welcome of the shm plane.
const (
	NoFiles    Way = "without its files"
	FewerFiles Way = "with one file"
	MoreFiles  Way = "with more files"
	Swapped    Way = "with its files in the other order"
	NoMemory   Way = "with files that are no memory"
	Shorter    Way = "with shorter memory"
	Unsealed   Way = "with memory that is not sealed, and is cut short"
)

// A Lie is a single deviation.
type Lie struct {
	Step Step
	Way  Way
}

// frameWays are the deviations that are possible for any frame.
var frameWays = []Way{
	Silence, Freeze, Garbage, Truncated, CutOff, Twice, Late, Number, Largest, TooLong, Closed, Trailing,
}

// TCPLies returns all lies of the tcp plane, in a stable order.
func TCPLies() (all []Lie) {
	for _, step := range []Step{Hello, Welcome, Push, Read, Cancel, Done, Join, Joined, PageOut, PageIn} {
		for _, way := range frameWays {
			all = append(all, Lie{step, way})
		}
		if step == Push || step == Read {
			all = append(all, Lie{step, Early})
		}
	}
	return all
}

// NPULies returns all lies of the plane between NPUs, in a stable order.
func NPULies() (all []Lie) {
	for _, step := range []Step{Hello, Welcome, Offer, Accept, Fenced, Gone} {
		for _, way := range frameWays {
			all = append(all, Lie{step, way})
		}
	}
	return all
}

// LibnixlLies returns all lies of the plane over libnixl, in a stable order. These lies concern the channel only,
// because no relay sees the traffic between agents.
func LibnixlLies() (all []Lie) {
	all = NPULies()
	for _, step := range []Step{Met, Busy, Idle} {
		for _, way := range frameWays {
			all = append(all, Lie{step, way})
		}
	}
	return all
}

// SHMLies returns all lies of the shm plane, which has no streams, in a stable order.
func SHMLies() (all []Lie) {
	for _, lie := range TCPLies() {
		if lie.Step != Join && lie.Step != Joined && lie.Step != PageOut && lie.Step != PageIn {
			all = append(all, lie)
		}
	}
	for _, step := range []Step{Hello, Welcome} {
		for _, way := range []Way{NoFiles, FewerFiles, MoreFiles, Swapped, NoMemory, Shorter, Unsealed} {
			all = append(all, Lie{step, way})
		}
	}
	return all
}

// garbageBytes returns n bytes of garbage, the same for each call.
func garbageBytes(n int) []byte {
	b := make([]byte, n)
	x := uint64(0x9e3779b97f4a7c15)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return b
}

// deviateUnit returns the bytes that are passed on in place of a frame or page with fields beginning at head. If
// endsConn is true, the connection ends after these bytes; if freezes is true, nothing more is passed in this
// direction.
func deviateUnit(way Way, unit []byte, head int) (b []byte, endsConn, freezes bool) {
	b = append([]byte(nil), unit...)
	switch way {
	case Silence:
		return nil, false, false
	case Freeze:
		return nil, false, true
	case Garbage:
		return garbageBytes(len(b)), false, false
	case Truncated:
		return b[:len(b)/2], false, false
	case CutOff:
		return b[:len(b)/2], true, false
	case Twice:
		return append(b, unit...), false, false
	case Number:
		b[min(head, len(b)-1)] ^= 1
	case Largest:
		for i := head; i < min(head+16, len(b)); i++ {
			b[i] = 0xff
		}
	case TooLong:
		at := 0 // The length of a frame comes first; the length of a page is the last field of its header.
		if head == 0 {
			at = pageHeadBytes - 4
		}
		binary.LittleEndian.PutUint32(b[at:], 1<<32-1)
	case Closed:
		return nil, true, false
	case Trailing:
		return append(b, garbageBytes(64)...), false, false
	case Late, Early, NoFiles, FewerFiles, MoreFiles, Swapped, NoMemory, Shorter, Unsealed: // The caller handles these.
	}
	return b, false, false
}
