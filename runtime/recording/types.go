package recording

import (
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/flows/end"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/layerwise"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/fsm/rank/flows/recall"
	"github.com/kvferry/kvferry/fsm/rank/flows/register"
)

// eventTypes lists the events. The position of a type is its number in recordings.
var eventTypes = []reflect.Type{
	reflect.TypeFor[effects.Tick](), reflect.TypeFor[effects.Command](), reflect.TypeFor[effects.Received](),
	reflect.TypeFor[effects.Opened](), reflect.TypeFor[effects.ConnLost](), reflect.TypeFor[effects.Replied](),
	reflect.TypeFor[effects.Unanswered](), reflect.TypeFor[effects.SendDone](), reflect.TypeFor[effects.Imported](),
	reflect.TypeFor[effects.LinkLost](), reflect.TypeFor[effects.TransferDone](), reflect.TypeFor[effects.CopyDone](),
	reflect.TypeFor[effects.Settled](), reflect.TypeFor[effects.Landed](), reflect.TypeFor[effects.Scattered](),
	reflect.TypeFor[effects.Revoked](), reflect.TypeFor[effects.Dropped](), reflect.TypeFor[effects.Verified](),
}

// commandTypes lists the commands of a rank.
var commandTypes = []reflect.Type{
	reflect.TypeFor[rank.Drain](), reflect.TypeFor[recall.Recall](), reflect.TypeFor[end.End](),
	reflect.TypeFor[engine.Share](), reflect.TypeFor[engine.Withdraw](), reflect.TypeFor[engine.Get](),
	reflect.TypeFor[engine.Fetch](), reflect.TypeFor[engine.Contains](), reflect.TypeFor[engine.Unpin](),
	reflect.TypeFor[engine.Abandon](), reflect.TypeFor[engine.GiveUp](), reflect.TypeFor[engine.Store](),
	reflect.TypeFor[engine.Reserve](), reflect.TypeFor[engine.Release](), reflect.TypeFor[engine.Put](),
	reflect.TypeFor[engine.Abort](), reflect.TypeFor[register.Register](), reflect.TypeFor[register.Finished](),
	reflect.TypeFor[register.Aborted](), reflect.TypeFor[register.Expect](), reflect.TypeFor[register.NotNeeded](),
	reflect.TypeFor[p2p.Bring](), reflect.TypeFor[p2p.Locate](), reflect.TypeFor[layerwise.Begin](),
	reflect.TypeFor[layerwise.Save](), reflect.TypeFor[layerwise.Preempt](), reflect.TypeFor[layerwise.Finish](),
	reflect.TypeFor[layerwise.Drop](),
}

// An origin is all from which the machine was made, besides the build.
type origin struct {
	Config  rank.Config
	Seed    uint64
	Now     effects.Time
	Node    effects.Incarnation
	Servers []string // the control channels that the node serves, for people
}

// codecs has the codecs of everything that is recorded.
var codecs = struct {
	registry
	origin *codec
	events []*codec
}{registry: registry{codecs: map[reflect.Type]*codec{}}}

func init() {
	codecs.origin = codecs.codecOf(reflect.TypeFor[origin]())
	for i, t := range eventTypes {
		codecs.events = append(codecs.events, codecs.codecOf(t))
		if n, _ := eventNumber(reflect.New(t).Interface().(effects.Event)); n != i {
			panic(fmt.Sprintf("BUG: %v has the numbers %d and %d", t, i, n))
		}
	}
}

// eventNumber returns the position of an event's type in eventTypes, and the memory of the event.
func eventNumber(ev effects.Event) (int, unsafe.Pointer) {
	switch ev := ev.(type) {
	case *effects.Tick:
		return 0, unsafe.Pointer(ev)
	case *effects.Command:
		return 1, unsafe.Pointer(ev)
	case *effects.Received:
		return 2, unsafe.Pointer(ev)
	case *effects.Opened:
		return 3, unsafe.Pointer(ev)
	case *effects.ConnLost:
		return 4, unsafe.Pointer(ev)
	case *effects.Replied:
		return 5, unsafe.Pointer(ev)
	case *effects.Unanswered:
		return 6, unsafe.Pointer(ev)
	case *effects.SendDone:
		return 7, unsafe.Pointer(ev)
	case *effects.Imported:
		return 8, unsafe.Pointer(ev)
	case *effects.LinkLost:
		return 9, unsafe.Pointer(ev)
	case *effects.TransferDone:
		return 10, unsafe.Pointer(ev)
	case *effects.CopyDone:
		return 11, unsafe.Pointer(ev)
	case *effects.Settled:
		return 12, unsafe.Pointer(ev)
	case *effects.Landed:
		return 13, unsafe.Pointer(ev)
	case *effects.Scattered:
		return 14, unsafe.Pointer(ev)
	case *effects.Revoked:
		return 15, unsafe.Pointer(ev)
	case *effects.Dropped:
		return 16, unsafe.Pointer(ev)
	case *effects.Verified:
		return 17, unsafe.Pointer(ev)
	}
	panic("BUG: event of unknown type")
}

// appendEvent appends an event with its type. The result is false for a command of an unknown type.
func appendEvent(b []byte, ev effects.Event) ([]byte, bool) {
	if c, ok := ev.(*effects.Command); ok {
		t := reflect.TypeOf(c.Body)
		if t == nil || t.Kind() != reflect.Pointer || !slices.Contains(commandTypes, t.Elem()) {
			return b, false
		}
	}
	n, p := eventNumber(ev)
	return codecs.events[n].encode(append(b, byte(n)), p), true
}

func (r *decoder) event() effects.Event {
	n := int(r.take(1)[0])
	if n >= len(eventTypes) {
		r.fail()
		n = 0
	}
	v := reflect.New(eventTypes[n])
	codecs.events[n].decode(r, v.UnsafePointer())
	return v.Interface().(effects.Event)
}

func appendOrigin(b []byte, o *origin) []byte { return codecs.origin.encode(b, unsafe.Pointer(o)) }

func (r *decoder) origin() *origin {
	o := new(origin)
	if codecs.origin.decode(r, unsafe.Pointer(o)); r.err == nil && len(r.b) > 0 {
		r.err = fmt.Errorf("%d bytes behind the configuration", len(r.b))
	}
	return o
}
