package demo

import (
	"context"
	"sync"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
)

// killOwner kills the last instance while another one, which is frozen for that, holds a loan of it, and starts it again.
// Where no look finds one it is killed as well. It begins when chunks of a peer have come to some request.
func (s *sharer) killOwner(ctx context.Context) {
	select {
	case <-s.tally.may:
	case <-ctx.Done():
		return
	}
	at := s.town.seats[instances-1]
	owner, others := at.now(), s.town.nodes()[:instances-1]
	lent := 0
	var over <-chan struct{}
	for try := 0; try < 100 && lent == 0 && ctx.Err() == nil; try++ {
		over = s.readFrom(owner, others, freshKeys(try, batchChunks/2))
		if lent = s.lent(owner, over); lent > 0 {
			for _, p := range others {
				p.freeze()
			}
			s.look(owner)
			lent = s.lentNow(owner)
		}
		if lent == 0 { // They had read it all before they held still.
			for _, p := range others {
				p.thaw()
			}
			<-over
		}
	}
	s.tally.crashing(lent)
	begin := time.Now()
	err := at.crash(ctx, func() {
		for _, p := range others {
			p.thaw()
		}
	})
	s.tally.crashed(owner.name, time.Since(begin), err)
	<-over
}

// readFrom has instances bring chunks that the owner stores for that. What it returns is closed when they have ended.
func (s *sharer) readFrom(owner *process, others []*process, keys []string) <-chan struct{} {
	owner.call(agent.Request{Op: "store", Keys: keys})
	over := make(chan struct{})
	var readers sync.WaitGroup
	for _, p := range others {
		readers.Go(func() {
			got := p.call(agent.Request{Op: "bring", Peer: &s.town.peers[instances-1], Request: "killed", Keys: keys})
			s.tally.verified(&got)
		})
	}
	go func() {
		readers.Wait()
		close(over)
	}()
	return over
}

// lent looks at an owner until it has lent pages, and says how many; 0 if its readers ended before.
func (s *sharer) lent(owner *process, over <-chan struct{}) int {
	for {
		if n := s.lentNow(owner); n > 0 {
			return n
		}
		select {
		case <-over:
			return 0
		default:
		}
	}
}

func (s *sharer) lentNow(owner *process) int {
	if stats := s.look(owner); stats != nil {
		return stats.PagesLent
	}
	return 0
}

// killDirectory kills one, starts it again, and waits until all instances have told it again what they have.
func (s *sharer) killDirectory(ctx context.Context) {
	d := s.town.directories[0]
	name, begin := d.now().name, time.Now()
	err := d.crash(ctx, func() {})
	if err == nil {
		err = d.knows(ctx, instances)
	}
	s.tally.crashed(name, time.Since(begin), err)
}
