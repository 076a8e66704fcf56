//go:build cgo && linux

package libnixl_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/runtime/internal/proctest"
	"github.com/kvferry/kvferry/runtime/libnixl"
	"github.com/kvferry/kvferry/runtime/libnixl/libnixltest"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		flag.Parse()
		child(proctest.TB{}, role)
		libnixltest.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(libnixltest.Exit))
}

// transports lists restrictions of UCX's transports within a host. Without a restriction UCX uses cross-memory attach.
var transports = []struct{ name, config string }{
	{"its choice", ""}, {"tcp", "TLS=tcp"}, {"shared memory without cross-memory attach", "TLS=^cma"},
}

func fill(m []byte, with byte) {
	for i := range m {
		m[i] = with
	}
}

func addressOf(m []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m)))) }

// A node is an agent with memory.
type node struct {
	*libnixl.Agent
	bytes  []byte
	memory *libnixl.Memory
}

func newNode(tb testing.TB, name, config string, bytes int, with byte) *node {
	tb.Helper()
	o := libnixl.AgentOptions{Name: name}
	if config != "" {
		o.Params = map[string]string{"engine_config": config}
	}
	agent, err := libnixltest.Library(tb).NewAgent(o)
	if err != nil {
		tb.Fatal(err)
	}
	n := &node{Agent: agent, bytes: libnixltest.Memory(tb, bytes)}
	fill(n.bytes, with)
	n.memory, err = agent.Register(libnixl.Host, libnixl.Range{Address: addressOf(n.bytes), Bytes: uint64(bytes)})
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// end closes what is open.
func (n *node) end(tb testing.TB) {
	tb.Helper()
	if err := errors.Join(n.memory.Close(), n.Close()); err != nil {
		tb.Error(err)
	}
}

// knows loads the metadata of a peer.
func (n *node) knows(tb testing.TB, metadata []byte) string {
	tb.Helper()
	peer, err := n.Load(metadata)
	if err != nil {
		tb.Fatal(err)
	}
	return peer
}

func metadata(tb testing.TB, n *node) []byte {
	tb.Helper()
	b, err := n.Metadata()
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// transfer makes a transfer of all bytes of n, to or from the peer's memory at an address.
func (n *node) transfer(tb testing.TB, op libnixl.Operation, peer string, at uint64, notice string) *libnixl.Transfer {
	tb.Helper()
	t, err := n.NewTransfer(libnixl.TransferOptions{
		Operation: op, Peer: peer, Notice: []byte(notice),
		Pairs: []libnixl.Pair{{Local: addressOf(n.bytes), Remote: at, Bytes: uint64(len(n.bytes))}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// await posts a transfer, and polls the agents until the transfer is done.
func await(tb testing.TB, t *libnixl.Transfer, others ...*node) {
	tb.Helper()
	done, err := t.Post()
	for end := time.Now().Add(proctest.Limit); !done && err == nil; done, err = t.Check() {
		for _, n := range others {
			if _, err := n.Notices(); err != nil {
				tb.Fatal(err)
			}
		}
		if time.Now().After(end) {
			tb.Fatal("it takes too long")
		}
	}
	if err != nil {
		tb.Fatal(err)
	}
}

func all(b []byte, with byte) error {
	for i, have := range b {
		if have != with {
			return fmt.Errorf("byte %d is %d; want %d", i, have, with)
		}
	}
	return nil
}
