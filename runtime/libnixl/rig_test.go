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
		runTarget(proctest.TB{}, role)
		libnixltest.ExitProcess(0)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(libnixltest.ExitProcess))
}

// transports lists restrictions of UCX's transports within a host. Without a restriction UCX uses cross-memory attach.
var transports = []struct{ name, config string }{
	{"its choice", ""}, {"tcp", "TLS=tcp"}, {"shared memory without cross-memory attach", "TLS=^cma"},
}

func fillBytes(m []byte, with byte) {
	for i := range m {
		m[i] = with
	}
}

func addressOf(m []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m)))) }

// A testAgent is an agent with memory.
type testAgent struct {
	*libnixl.Agent
	bytes  []byte
	memory *libnixl.Memory
}

func newTestAgent(tb testing.TB, name, config string, bytes int, with byte) *testAgent {
	tb.Helper()
	o := libnixl.AgentOptions{Name: name}
	if config != "" {
		o.Params = map[string]string{"engine_config": config}
	}
	agent, err := libnixltest.LoadLibrary(tb).NewAgent(o)
	if err != nil {
		tb.Fatal(err)
	}
	n := &testAgent{Agent: agent, bytes: libnixltest.AllocMemory(tb, bytes)}
	fillBytes(n.bytes, with)
	n.memory, err = agent.RegisterMemory(libnixl.Host, libnixl.Range{Address: addressOf(n.bytes), Bytes: uint64(bytes)})
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// closeAll closes what is open.
func (n *testAgent) closeAll(tb testing.TB) {
	tb.Helper()
	if err := errors.Join(n.memory.Close(), n.Close()); err != nil {
		tb.Error(err)
	}
}

// loadPeer loads the metadata of a peer.
func (n *testAgent) loadPeer(tb testing.TB, metadata []byte) string {
	tb.Helper()
	peer, err := n.LoadMetadata(metadata)
	if err != nil {
		tb.Fatal(err)
	}
	return peer
}

func metadataOf(tb testing.TB, n *testAgent) []byte {
	tb.Helper()
	b, err := n.Metadata()
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// newTransfer makes a transfer of all bytes of n, to or from the peer's memory at an address.
func (n *testAgent) newTransfer(tb testing.TB, op libnixl.Operation, peer string, at uint64, notice string) *libnixl.Transfer {
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

// awaitTransfer posts a transfer, and polls the agents until the transfer is done.
func awaitTransfer(tb testing.TB, t *libnixl.Transfer, others ...*testAgent) {
	tb.Helper()
	done, err := t.Post()
	for end := time.Now().Add(proctest.Limit); !done && err == nil; done, err = t.Check() {
		for _, n := range others {
			if _, err := n.PollNotices(); err != nil {
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

func wantAll(b []byte, with byte) error {
	for i, have := range b {
		if have != with {
			return fmt.Errorf("byte %d is %d; want %d", i, have, with)
		}
	}
	return nil
}
