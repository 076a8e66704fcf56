package demo

import (
	"context"
	"sync"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
)

// killOwner kills the last instance while pages of chunks that it has are under way to others, and starts it again. For
// that those hold still who would end it: the readers, or the owner where it writes. Where no look finds such pages it
// is killed as well. It begins when chunks of a peer have come to some request.
func (s *sharer) killOwner(ctx context.Context) {
	select {
	case <-s.tally.may:
	case <-ctx.Done():
		return
	}
	at := s.town.seats[instances-1]
	owner, others := at.now(), s.town.nodes()[:instances-1]
	still, asked := others, []*process{owner}
	if s.options.Mode == P2PPush {
		still, asked = asked, still
	}
	count := func() (n int) {
		for _, p := range asked {
			if stats := s.look(p); stats != nil && s.options.Mode == P2PPush {
				n += stats.PagesGranted
			} else if stats != nil {
				n += stats.PagesLent
			}
		}
		return n
	}
	found := 0
	var over <-chan struct{}
	for try := 0; try < 100 && found == 0 && ctx.Err() == nil; try++ {
		over = s.readFrom(owner, others, freshKeys(try, batchChunks/2))
		if found = looks(count, over); found > 0 {
			for _, p := range still {
				p.freeze()
			}
			found = count()
		}
		if found == 0 { // It was over before they held still.
			for _, p := range still {
				p.thaw()
			}
			<-over
		}
	}
	s.tally.crashing(found)
	begin := time.Now()
	err := at.crash(ctx, func() {
		for _, p := range others {
			p.thaw()
		}
	})
	s.tally.crashed(owner.name, time.Since(begin), err)
	<-over
}

// looks counts pages until there are some; 0 if what they are for ends before.
func looks(count func() int, over <-chan struct{}) int {
	for {
		if n := count(); n > 0 {
			return n
		}
		select {
		case <-over:
			return 0
		default:
		}
	}
}

// readFrom has instances bring chunks that the owner stores for that. What it returns is closed when they have ended.
func (s *sharer) readFrom(owner *process, others []*process, keys []string) <-chan struct{} {
	owner.call(agent.Request{Op: "store", Keys: keys})
	over := make(chan struct{})
	var readers sync.WaitGroup
	for _, p := range others {
		readers.Go(func() {
			got := p.call(agent.Request{Op: "bring", Peer: &s.town.peers[instances-1], Request: "killed", Keys: keys,
				Fetch: s.options.Mode == P2PDelay})
			s.tally.verified(&got)
		})
	}
	go func() {
		readers.Wait()
		close(over)
	}()
	return over
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
