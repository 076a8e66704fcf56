//go:build cgo

package runtime_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// plainHello is how an unmodified sender begins its handshake.
func plainHello() []byte {
	return []byte("\x83" + fixstr("type") + fixstr("HixlInitRequest") +
		fixstr("local_id") + fixstr("plain:1") + fixstr("engine_id") + fixstr("plain"))
}

// refusesPlainly says whether a reply is what a plain peer reads as no to a step of its handshake. What stands behind
// that in the map, kvf_code and kvf_reason, is for people: a plain peer passes over fields that it does not know.
func refusesPlainly(reply []byte) bool {
	no := []byte(fixstr("type") + fixstr("HixlReadyResponse") + fixstr("ok") + "\xc2" + fixstr("kvf_code"))
	return len(reply) > 0 && reply[0] == '\x84' && bytes.HasPrefix(reply[1:], no)
}

// A plain sender is told no pages, and could not write any: a grant to nobody opens nothing. Here somebody tries who
// has all that can be had, a token of the plane that no handshake gave out and a link by it, and presents every grant
// that can have been given.
func TestPlainSenderWritesNothingOnFencedPlanes(t *testing.T) {
	openers := map[string]plane.Opener{shm.Name: shm.Open, tcp.Name: tcp.Open}
	for _, name := range []string{shm.Name, tcp.Name} {
		t.Run(name, func(t *testing.T) {
			node, env, blob := openSeen(t, receiverConfig(t, name, nil), name, openers[name])
			defer mustClose(t, node)
			peer := peerOf(node)

			t.Log("# its handshake is refused: it names no plane that is here")
			refused := askPlainly(t, effects.Addr{Host: "127.0.0.1", Port: peer.InitPort}, plainHello())
			if !refusesPlainly(refused[0]) {
				t.Errorf("handshake: got %q, want no", refused[0])
			}

			t.Log("# so is its allocation, and its bytes are let in nowhere")
			key := "plain@1@0@a1@bfloat16"
			if reply := askPlainly(t, effects.Addr{Host: "127.0.0.1", Port: peer.AllocPort},
				plainRequest(key))[0]; len(reply) != 0 {
				t.Errorf("it is answered %q, want an empty frame", reply)
			}
			page := effects.Page{Index: 0, Length: pageBytes}
			before := bytes.Clone(env.Pool.Bytes(page))

			writer := planetest.OpenNode(t, openers[name], 7, 1, pageBytes)
			from := writer.PublishPages(0, 1, pageBytes)
			host := writer.Pool.Bytes(from[0])
			for i := range host {
				host[i] = 0xA5
			}
			token := env.Key.Token(name, writer.Inc, env.Incarnation)
			linked := writer.ImportAs(t, writer.Inc, env.Incarnation, append(bytes.Clone(blob), token[:]...))
			if linked.Code != effects.OK {
				t.Fatalf("the import ended as %s", linked.Code)
			}
			for number := range effects.GrantID(8) {
				for slot := range effects.GrantID(8) {
					grant := (number+1)*(memory.GrantsMax+1) + slot
					done := writer.AwaitDone(t, writer.StartPush(planetest.Push{To: env.Incarnation, Link: linked.Link, Grant: grant,
						From: from, Into: []effects.Page{page}, Buffer: env.Pool.Buffer().ID}))
					if done.Code != effects.Withdrawn {
						t.Fatalf("grant %d: the write ended as %s, want %s", grant, done.Code, effects.Withdrawn)
					}
				}
			}
			if !bytes.Equal(env.Pool.Bytes(page), before) {
				t.Error("the page was written")
			}
			got, err := node.Receiver().Get(within(t), runtime.Get{Keys: []string{key}})
			if runtime.CodeOf(err) != effects.NotFound || got.Len() != 0 {
				t.Errorf("get: %v, %v; want nothing", got, err)
			}
		})
	}
}

// openSeen opens a node and returns what its plane was given and says of itself.
func openSeen(t *testing.T, cfg *config.Config, name string, opener plane.Opener) (n *runtime.Node, env plane.Env,
	blob []byte) {
	t.Helper()
	n, err := runtime.Open(t.Context(), cfg,
		runtime.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))),
		runtime.WithControl(zmq.Config{}.Opener()),
		runtime.WithPlane(name, func(ctx context.Context, e plane.Env) (plane.Plane, error) {
			p, err := opener(ctx, e)
			if err == nil {
				env, blob = e, p.Blob()
			}
			return p, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	return n, env, blob
}
