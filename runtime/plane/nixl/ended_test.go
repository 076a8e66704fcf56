//go:build cgo && linux

package nixl_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/libnixl"
	"github.com/kvferry/kvferry/runtime/libnixl/libnixltest"
	"github.com/kvferry/kvferry/runtime/libnixl/nixlproc"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/nixl"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

// A pairOfProcesses is a pair of nodes, with the process of libnixl that each has.
type pairOfProcesses struct {
	*planetest.LeasedPair
	children map[string]int // by node
}

func newPairOfProcesses(t *testing.T, transports string) *pairOfProcesses {
	t.Helper()
	quick := maker(transports, func(c *nixl.Config) {
		c.Agents = nixlproc.Options{CallTimeout: 2 * time.Second}.Open
	})
	p := &pairOfProcesses{children: map[string]int{}}
	p.LeasedPair = &planetest.LeasedPair{A: planetest.OpenLeased(t, quick, 1, pages, pageBytes)}
	before := p.find(t, "initiator", nil)
	p.B = planetest.OpenLeased(t, quick, 2, pages, pageBytes)
	p.find(t, "target", before)
	p.Link = p.A.Import(t, p.B.Inc, p.B.Plane.Blob())
	return p
}

// find records the process of a node: the one that was not there before.
func (p *pairOfProcesses) find(t *testing.T, node string, before []int) []int {
	t.Helper()
	all := libnixltest.Children(t, os.Getpid())
	fresh := slices.DeleteFunc(slices.Clone(all), func(pid int) bool { return slices.Contains(before, pid) })
	if len(fresh) != 1 {
		t.Fatalf("%s has the processes %v", node, fresh)
	}
	p.children[node] = fresh[0]
	return all
}

// The process of either node dies or freezes in the middle of pushes: each push arrives byte for byte or is reported as
// failed, the link has new agents soon, and nothing is lost for good.
func TestProcessEndsDuringPushes(t *testing.T) {
	for _, c := range transports {
		for _, node := range []string{"initiator", "target"} {
			for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "frozen": syscall.SIGSTOP} {
				t.Run(c.name+", the "+node+"'s is "+name, func(t *testing.T) {
					p := newPairOfProcesses(t, c.transports)
					var pushes []planetest.Move
					var corrs []effects.Corr
					const each = pages / pushesOfKill
					for i := range pushesOfKill {
						pushes = append(pushes, p.NewPush(t, i*each, each))
					}
					for _, m := range pushes {
						corrs = append(corrs, p.A.StartTransfer(m))
					}
					p.A.AwaitDone(t, corrs[0])
					if err := syscall.Kill(p.children[node], signal); err != nil {
						t.Fatal(err)
					}
					codes := map[effects.Code]int{}
					for i, corr := range corrs[1:] {
						done := p.A.AwaitDone(t, corr)
						if codes[done.Code]++; done.Code == effects.OK {
							p.WantArrived(t, pushes[i+1])
						}
					}
					t.Logf("ended as %v", codes)
					for code := range codes {
						if code != effects.OK && code != effects.Faulted && code != effects.PeerLost {
							t.Errorf("pushes ended as %v", codes)
						}
					}
					if codes[effects.OK] == len(corrs)-1 {
						t.Log("all pushes had ended before, or were made again")
					}
					again := p.NewPush(t, 0, pages)
					p.WantEnd(t, again, effects.OK)
					p.WantArrived(t, again)
				})
			}
		}
	}
}

const pushesOfKill = 16

// The process dies while nothing is in flight: the next push does not fail.
func TestIdleProcessEnds(t *testing.T) {
	for _, c := range transports {
		for _, node := range []string{"initiator", "target"} {
			t.Run(c.name+", the "+node+"'s", func(t *testing.T) {
				p := newPairOfProcesses(t, c.transports)
				push := p.NewPush(t, 0, pages)
				p.WantEnd(t, push, effects.OK)
				formed := p.A.Plane.(*nixl.Plane).Stats().FormedEpochs
				if err := syscall.Kill(p.children[node], syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				for end := time.Now().Add(longTimeout); p.A.Plane.(*nixl.Plane).Stats().FormedEpochs == formed; {
					if time.Now().After(end) {
						t.Fatal("no agents are made anew")
					}
					time.Sleep(time.Millisecond)
				}
				again := p.NewPush(t, 0, pages)
				p.WantEnd(t, again, effects.OK)
				p.WantArrived(t, again)
			})
		}
	}
}

// A grant is revoked while the target's process is dead or frozen. Nothing is revoked before the kernel has reported the
// end of the process, and after that nothing is stored.
func TestRevokeWhileProcessEnds(t *testing.T) {
	for _, c := range transports {
		for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
			t.Run(c.name+", "+signal.String(), func(t *testing.T) {
				p := newPairOfProcesses(t, c.transports)
				push := p.NewPush(t, 0, pages)
				var corrs []effects.Corr
				for range pushesOfKill {
					corrs = append(corrs, p.A.StartTransfer(push))
				}
				p.A.AwaitDone(t, corrs[0])
				if err := syscall.Kill(p.children["target"], signal); err != nil {
					t.Fatal(err)
				}
				p.B.Do(&effects.Revoke{Grant: push.Grant})
				p.B.AwaitRevoked(t, push.Grant)
				if err := syscall.Kill(p.children["target"], 0); signal == syscall.SIGSTOP && err == nil {
					t.Error("revoked while the process of our agents exists")
				}
				holds := p.B.FillOwnPages(t, 0, pages)
				for _, corr := range corrs[1:] {
					p.A.AwaitDone(t, corr)
				}
				holds()
			})
		}
	}
}

// A plane whose agents run elsewhere refuses memory without a file, and says what to do.
func TestMemoryWithoutFile(t *testing.T) {
	libnixltest.LoadLibrary(t)
	private := func(tb testing.TB, id byte, pages uint32, pageBytes uint64, sink plane.Sink) planetest.LeasedEnd {
		end := maker("")(tb, id, pages, pageBytes, sink)
		served := end.Pool.FirstRegion()
		served.File = nil
		pool, err := plane.NewLeasedPool(plane.LeasedPoolConfig{Pages: pages, PageBytes: pageBytes, Region: served, Sink: sink})
		if err != nil {
			tb.Fatal(err)
		}
		end.Pool = pool
		return end
	}
	_, err := planetest.NewLeasedNode(t, private, 1, pages, 4096)
	if !errors.Is(err, libnixl.ErrInvalid) || !strings.Contains(err.Error(), "nixl.in_process: true") {
		t.Errorf("got %v", err)
	}
}

// In the node's own process the plane works as well.
func TestInProcess(t *testing.T) {
	here := maker("tcp", func(c *nixl.Config) { c.Agents = nixlproc.InProcess(libnixltest.LoadLibrary(t)) })
	p := planetest.NewLeasedPair(t, here, pages, pageBytes)
	push := p.NewPush(t, 0, pages)
	p.WantEnd(t, push, effects.OK)
	p.WantArrived(t, push)
	if list := libnixltest.Children(t, os.Getpid()); len(list) > 0 {
		t.Errorf("there are processes %v", list)
	}
}
