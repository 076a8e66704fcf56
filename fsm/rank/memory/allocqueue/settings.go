package allocqueue

import "github.com/kvferry/kvferry/fsm/rank/kernel"

// Settings is the part of a rank's configuration that concerns the allocation queue. Zero means the default.
type Settings struct {
	WaitersMax uint32 // limit of waiting allocation requests, of all peers; default 1024
	// WaitingBytes is the limit of the bytes of waiting requests, of all peers; default 64 MiB. A peer has no more than
	// remains for the others.
	WaitingBytes uint64
	BypassMax    uint32 // how often a waiting head is passed before pages are collected for it; default 16
}

// Fill sets the defaults of fields that are zero.
func (s *Settings) Fill() {
	kernel.SetDefault(&s.WaitersMax, 1024)
	kernel.SetDefault(&s.WaitingBytes, 64<<20)
	kernel.SetDefault(&s.BypassMax, 16)
}

// Check returns an error if a setting cannot work.
func (s *Settings) Check() error {
	return kernel.CheckCounts(kernel.Count{Name: "WaitersMax", Value: s.WaitersMax})
}

// Need returns the resources that the queue needs: a deadline for each waiting request.
func (s *Settings) Need() kernel.Need { return kernel.Need{Deadlines: int(s.WaitersMax)} }
