package demo

import (
	"context"
	"sync"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
)

// killInstance kills the last instance while pages of its chunks are in transfer to readers, and starts the instance
// again. To catch such a moment, killInstance suspends the processes that would end the transfer: the readers, or in
// mode p2p-push the instance itself, which writes. If no attempt finds pages in transfer, the instance is killed
// without them. killInstance starts when strikesReady is closed.
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
		if found == 0 { // The transfer had ended before the processes were suspended.
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

// awaitPages calls count until it returns more than 0 pages, and returns that number. It returns 0 if the readers end
// first.
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

// startReaders makes the owner store chunks and the readers bring them from the owner. The returned channel is closed
// when all readers have ended.
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

// killDirectory kills the first directory, starts it again, and waits until all instances have reported their chunks to
// the new incarnation.
func (s *sharer) killDirectory(ctx context.Context) {
	d := s.town.directories[0]
	name, begin := d.now().name, time.Now()
	err := d.crash(ctx, func() {})
	if err == nil {
		err = d.knows(ctx, instances)
	}
	s.tally.crashed(name, time.Since(begin), err)
}
