//go:build cgo && linux

package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/runtime/libnixl"
)

// nixlWriteMax is the longest time that a write may take.
const nixlWriteMax = 30 * time.Second

// testNIXLWrite loads libnixl, creates two agents, and measures and verifies writes from one agent to the other.
func testNIXLWrite(ctx context.Context, o libnixl.Options, transports string, bytes uint64) NIXL {
	lib, err := libnixl.Open(o)
	if err != nil {
		return NIXL{Err: err}
	}
	n := NIXL{Info: lib.Info(), Write: Speed{Name: "write, verified"}}
	p := &nixlPair{bytes: min(bytes, nixlBytesMax)}
	n.Agent, err = p.openAgents(lib, transports)
	if err == nil {
		n.Write.PerSecond, err = p.measureWrites(ctx)
	}
	n.Write.Err = errors.Join(err, p.closeAgents())
	return n
}

// A nixlPair holds two agents, the registered memory of each, and the transfer from the first agent to the second.
type nixlPair struct {
	bytes      uint64
	agents     [2]*libnixl.Agent
	memory     [2][]byte
	registered [2]*libnixl.Memory
	transfer   *libnixl.Transfer
}

// openAgents creates the agents and the transfer, and returns the time that it took to create the second agent.
func (p *nixlPair) openAgents(lib *libnixl.Library, transports string) (took time.Duration, err error) {
	params := libnixl.UCXParams(transports, false) // The agents connect only to each other.
	for i, side := range []string{"a", "b"} {
		begin := time.Now()
		p.agents[i], err = lib.NewAgent(libnixl.AgentOptions{
			Name: fmt.Sprintf("kvferry-doctor-%d-%s", os.Getpid(), side), Params: params,
		})
		if took = time.Since(begin); err != nil {
			return 0, err
		}
		p.memory[i], err = unix.Mmap(-1, 0, int(p.bytes), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
		if err != nil {
			return 0, fmt.Errorf("map %d bytes: %w", p.bytes, err)
		}
		if p.registered[i], err = p.agents[i].RegisterMemory(libnixl.Host, p.memoryRange(i)); err != nil {
			return 0, err
		}
	}
	metadata, err := p.agents[1].Metadata()
	if err != nil {
		return 0, err
	}
	peer, err := p.agents[0].LoadMetadata(metadata)
	if err != nil {
		return 0, err
	}
	p.transfer, err = p.agents[0].NewTransfer(libnixl.TransferOptions{Operation: libnixl.Write, Peer: peer,
		Pairs: []libnixl.Pair{{Local: p.memoryRange(0).Address, Remote: p.memoryRange(1).Address, Bytes: p.bytes}}})
	return took, err
}

func (p *nixlPair) memoryRange(i int) libnixl.Range {
	return libnixl.Range{Address: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p.memory[i])))), Bytes: p.bytes}
}

// measureWrites writes several times, with different bytes each time, and compares every byte. It returns the speed of
// the fastest write, not counting the first.
func (p *nixlPair) measureWrites(ctx context.Context) (perSecond float64, err error) {
	for round := range copyRounds + 1 {
		for i := range p.memory[0] {
			p.memory[0][i] = byte(i>>12 + i*31 + round + 1)
		}
		begin := time.Now()
		if err := p.writeOnce(ctx, begin.Add(nixlWriteMax)); err != nil {
			return 0, err
		}
		// The first write also connects the agents, so its time does not count.
		if took := time.Since(begin); took > 0 && round > 0 {
			perSecond = max(perSecond, float64(p.bytes)/took.Seconds())
		}
		for i, b := range p.memory[1] {
			if b != p.memory[0][i] {
				return 0, fmt.Errorf("byte %d of %d is %#x instead of %#x, although the library reported that the write is complete", i,
					p.bytes, b, p.memory[0][i])
			}
		}
	}
	return perSecond, nil
}

// writeOnce carries out the transfer once. It also polls the agent of the target, because with some transports that
// agent stores the bytes.
func (p *nixlPair) writeOnce(ctx context.Context, deadline time.Time) error {
	done, err := p.transfer.Post()
	for ; !done && err == nil; done, err = p.transfer.Check() {
		if _, err := p.agents[1].PollNotices(); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("a write of %d bytes is not complete after %v", p.bytes, nixlWriteMax)
		}
	}
	return err
}

// closeAgents releases the resources of openAgents. The memory is unmapped last, because an agent may use the memory
// until the agent is destroyed.
func (p *nixlPair) closeAgents() error {
	var errs []error
	if p.transfer != nil {
		errs = append(errs, p.transfer.Close())
	}
	for i, agent := range p.agents {
		if p.registered[i] != nil {
			errs = append(errs, p.registered[i].Close())
		}
		if agent != nil {
			errs = append(errs, agent.Close())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("some resources could not be released: %w", err)
	}
	for _, mem := range p.memory {
		if mem != nil {
			errs = append(errs, unix.Munmap(mem))
		}
	}
	return errors.Join(errs...)
}
