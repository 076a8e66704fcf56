//go:build cgo && linux

package runtime_test

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// A toldImport tells which plane is asked to import.
type toldImport struct {
	plane.Plane
	asked chan<- string
}

func (p toldImport) Import(e *effects.Import) {
	p.asked <- p.Name()
	p.Plane.Import(e)
}

// Who imports takes the first of its own planes that both ends have, in whatever order the other one names them.
func TestWhoImportsChoosesThePlane(t *testing.T) {
	names := []string{shm.Name, tcp.Name}
	openers := map[string]plane.Opener{shm.Name: shm.Open, tcp.Name: tcp.Open}
	for i, first := range names {
		t.Run(first, func(t *testing.T) {
			asked := make(chan string, 16)
			options := func(order ...string) []runtime.Option {
				o := []runtime.Option{runtime.WithControl(zmq.Config{}.Opener()),
					runtime.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))}
				for _, name := range order {
					o = append(o, runtime.WithPlane(name, func(ctx context.Context, env plane.Env) (plane.Plane, error) {
						p, err := openers[name](ctx, env)
						return toldImport{p, asked}, err
					}))
				}
				return o
			}
			other := names[1-i]
			r, err := runtime.Open(t.Context(), receiverConfig(t, "auto", nil), options(other, first)...)
			if err != nil {
				t.Fatal(err)
			}
			defer mustClose(t, r)
			s, err := runtime.Open(t.Context(), senderConfig(t, "auto", effects.Addr{}), options(first, other)...)
			if err != nil {
				t.Fatal(err)
			}
			defer mustClose(t, s)
			pages := mustReserve(t, s, 1)
			defer mustRelease(t, pages)
			put := runtime.Put{Peer: peerOf(r), Request: "r", Keys: keysOf("order", 1), Pages: pages}
			if _, err := s.Sender().Put(within(t), put); err != nil {
				t.Fatal(err)
			}
			if got := <-asked; got != first {
				t.Errorf("the sender imports %s, which the receiver named first; want %s, its own first", got, first)
			}
		})
	}
}
