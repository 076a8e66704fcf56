//go:build cgo && linux

package libnixl_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/internal/proctest"
	"github.com/kvferry/kvferry/runtime/libnixl"
	"github.com/kvferry/kvferry/runtime/libnixl/libnixltest"
)

const childRole = "KVFERRY_LIBNIXL_ROLE"

// A line is a message between the processes.
type line struct {
	Metadata []byte
	Address  uint64
	Order    string
	LastByte byte // of the last byte
}

const large = 16 << 20

// runTarget is a target: a process with memory and an agent that carries out orders. Between two orders the process
// polls its agent if an order says so.
func runTarget(tb testing.TB, config string) {
	if config == "default" {
		config = ""
	}
	n := newTestAgent(tb, "target", config, large, 0)
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	orders := make(chan line)
	go func() {
		defer close(orders)
		for {
			var l line
			if in.Decode(&l) != nil {
				return
			}
			orders <- l
		}
	}()
	if err := out.Encode(line{Metadata: metadataOf(tb, n), Address: addressOf(n.bytes)}); err != nil {
		tb.Fatal(err)
	}
	for serves := false; ; {
		var wake <-chan time.Time
		if serves {
			wake = time.After(100 * time.Microsecond)
		}
		select {
		case <-wake:
			if _, err := n.PollNotices(); err != nil {
				tb.Fatal(err)
			}
			continue
		case l, ok := <-orders:
			if !ok {
				return
			}
			switch l.Order {
			case "serve":
				serves = true
			case "rest":
				serves = false
			case "clear":
				fillBytes(n.bytes, 0)
			case "deregister":
				if err := n.memory.Close(); err != nil {
					tb.Fatal(err)
				}
			case "close":
				if err := n.Close(); err != nil {
					tb.Fatal(err)
				}
				serves = false
			}
		}
		if err := out.Encode(line{LastByte: n.bytes[large-1]}); err != nil {
			tb.Fatal(err)
		}
	}
}

// A target is the child process as the parent uses it.
type target struct {
	*proctest.Process
	line
}

func startTarget(t *testing.T, config string) *target {
	t.Helper()
	if config == "" {
		config = "default"
	}
	p := &target{Process: proctest.Start(t, proctest.SelfCommand(childRole+"="+config))}
	p.ReceiveJSON(&p.line)
	return p
}

func (p *target) carryOut(order string) (holds byte) {
	p.SendJSON(line{Order: order})
	var l line
	p.ReceiveJSON(&l)
	return l.LastByte
}

// connectTo makes an initiator that is connected to the target.
func connectTo(t *testing.T, p *target, config string) (a *testAgent, peer string) {
	t.Helper()
	a = newTestAgent(t, "initiator", config, large, 1)
	peer = a.loadPeer(t, p.Metadata)
	p.carryOut("serve")
	write := a.newTransfer(t, libnixl.Write, peer, p.Address, "")
	awaitTransfer(t, write)
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	p.carryOut("rest")
	p.carryOut("clear")
	return a, peer
}

// The basis of the leased plane (M4): a write still reaches a target that has deregistered its memory. A write does not
// reach a target that has closed its agent, unless the initiator writes into the target's process by itself.
func TestWhatTheTargetCanEnd(t *testing.T) {
	libnixltest.LoadLibrary(t)
	for _, c := range transports {
		t.Run(c.name, func(t *testing.T) {
			p := startTarget(t, c.config)
			a, peer := connectTo(t, p, c.config)
			p.carryOut("deregister")
			p.carryOut("serve")
			write := a.newTransfer(t, libnixl.Write, peer, p.Address, "")
			awaitTransfer(t, write)
			if p.carryOut("clear"); p.carryOut("look") != 0 {
				t.Fatal("it is not cleared")
			}
			awaitTransfer(t, write)
			if p.carryOut("look") != 1 {
				t.Error("deregistering the memory kept the write off: say so in the package comment")
			}
			p.carryOut("rest")
			p.carryOut("clear")
			p.carryOut("close")
			done, err := write.Post()
			for end := time.Now().Add(200 * time.Millisecond); !done && err == nil && time.Now().Before(end); {
				done, err = write.Check()
			}
			reaches := c.config == "" // by cross-memory attach
			if landed := p.carryOut("look") == 1; landed != reaches || done != reaches {
				t.Errorf("after the target closed its agent, a write landed: %v, done: %v, %v", landed, done, err)
			}
			_ = write.Close() // The transfer may be in flight.
			a.closeAll(t)
		})
	}
}

// A transfer that was closed in flight goes on. Bytes that its agent had sent before the agent was closed land if the
// target's agent still exists, and nothing lands once the target's agent is closed, too.
func TestWhatTheInitiatorCanEnd(t *testing.T) {
	libnixltest.LoadLibrary(t)
	for _, c := range transports[1:] {
		t.Run(c.name, func(t *testing.T) {
			p := startTarget(t, c.config)
			a, peer := connectTo(t, p, c.config)
			write := a.newTransfer(t, libnixl.Write, peer, p.Address, "")
			if done, err := write.Post(); done || err != nil {
				t.Fatalf("a write to who does not serve is done: %v, %v", done, err)
			}
			if err := write.Close(); err != nil {
				t.Fatal(err)
			}
			p.carryOut("serve")
			for end := time.Now().Add(proctest.Limit); p.carryOut("look") != 1; {
				if _, err := a.PollNotices(); err != nil {
					t.Fatal(err)
				}
				if time.Now().After(end) {
					t.Fatal("a transfer was stopped by its Close: say so in the package comment")
				}
			}
			p.carryOut("rest")
			p.carryOut("clear")
			write = a.newTransfer(t, libnixl.Write, peer, p.Address, "")
			if done, err := write.Post(); done || err != nil {
				t.Fatalf("a write to who does not serve is done: %v, %v", done, err)
			}
			if err := write.Close(); err != nil {
				t.Fatal(err)
			}
			a.closeAll(t)
			p.carryOut("deregister")
			p.carryOut("close")
			if p.carryOut("look") != 0 {
				t.Error("bytes landed with both agents closed")
			}
		})
	}
}
