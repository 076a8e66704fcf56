package registrar

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/protocol"
)

// A Directory contains the addresses of a directory.
type Directory struct {
	RequestAddr effects.Addr // for requests: LMCache's controller_reply_url
	FeedAddr    effects.Addr // for messages without a reply: LMCache's controller_pull_url
	// Plain says that the directory is a controller of LMCache. Such a controller does not know the fields of
	// kvferry, and counts gaps without requesting a full sync.
	Plain bool
}

// A Worker is the identity of the worker that is registered and that sends lookups.
type Worker struct {
	Instance string
	Rank     uint32
	// IP and Port are the address at which requests of a controller would be accepted.
	IP   string
	Port uint16
	// URL is the host:port at which peers connect first. Empty: peers cannot reach the worker, and lookups do not
	// return it.
	URL string
	// Location is the name of the store: LMCache's name of the backend.
	Location    string
	Incarnation effects.Incarnation
}

// Config configures a registrar and its lookups. [Default] sets every field except the first five.
type Config struct {
	Owner       kernel.Owner // owner of the completions and deadlines of the Registrar
	LookupOwner kernel.Owner // owner of the completions and deadlines of Lookups
	Worker      Worker
	Directories []Directory
	// Seed is a secret from which the ids of syncs, delays and the choice of the first directory for a lookup are
	// derived.
	Seed uint64
	Wire protocol.Limits

	RequestTimeout effects.Duration // timeout of a request
	// BackoffMin and BackoffMax bound the delay before a failed connection is opened again.
	BackoffMin, BackoffMax effects.Duration
	HeartbeatEvery         effects.Duration // time between heartbeats
	// HeartbeatsLost is the number of consecutive heartbeats without a reply after which the worker registers again.
	HeartbeatsLost   uint32
	ReportDelay      effects.Duration // time for which operations are collected before a report
	ReportOperations int              // operations in a report
	LeaveTimeout     effects.Duration // time limit for deregistering

	// SyncEvery is the minimum time from the begin of a full sync to the begin of the next. It is doubled for each
	// consecutive failure, up to SyncEveryMax.
	SyncEvery      effects.Duration
	SyncEveryMax   effects.Duration
	SyncPause      effects.Duration // time between two batches
	SyncBatchSlots int              // slots of the store in a batch
	// SyncPoll is the time from the end of a sync to the first status request, and between status requests.
	SyncPoll      effects.Duration
	SyncPollsMax  uint32 // status requests after which the sync is begun again
	SyncResendMax int    // missing batches that are sent again at a time

	LookupsMax int // lookups in progress at a time
	// Window limits the requests in flight to a directory; a plain directory receives a single request at a time.
	Window     uint16
	PrefixMax  int // chunks in a lookup
	HoldersMax int // holders in a reply
	TriesMax   int // directories that are asked in turn
	// LookupTimeout is the timeout for the reply of a directory to a lookup.
	LookupTimeout effects.Duration
	// CacheTime is the time for which a reply that names holders is reused for the same lookup; 0: never.
	CacheTime effects.Duration
	CacheSize int // replies that are kept for reuse
}

// Default returns the values of LMCache's workers where these have a corresponding setting.
func Default() Config {
	return Config{
		Wire:           protocol.DefaultLimits(),
		RequestTimeout: 5 * effects.Second, BackoffMin: 100 * effects.Millisecond, BackoffMax: 10 * effects.Second,
		HeartbeatEvery: 10 * effects.Second, HeartbeatsLost: 3, ReportDelay: 10 * effects.Millisecond, ReportOperations: 50,
		LeaveTimeout: 5 * effects.Second,
		SyncEvery:    5 * effects.Second, SyncEveryMax: 300 * effects.Second, SyncPause: 5 * effects.Millisecond, SyncBatchSlots: 2000,
		SyncPoll: 5 * effects.Second, SyncPollsMax: 12, SyncResendMax: 256,
		LookupsMax: 256, Window: 16, PrefixMax: 1000, HoldersMax: 8, TriesMax: 3, LookupTimeout: 500 * effects.Millisecond,
		CacheTime: 5 * effects.Second, CacheSize: 1024,
	}
}

// MaxDirectories is the maximum number of directories.
const MaxDirectories = 64

// Check returns an error that names the first invalid field.
func (c *Config) Check() error {
	w := &c.Worker
	switch {
	case w.Instance == "" || len(w.Instance) > c.Wire.StringBytes:
		return fmt.Errorf("registrar: instance has %d bytes: give 1 to %d", len(w.Instance), c.Wire.StringBytes)
	case w.Rank > 1<<16-1:
		return fmt.Errorf("registrar: rank is %d: give at most 65535", w.Rank)
	case w.Location == "":
		return fmt.Errorf("registrar: location is empty: give LMCache's name of the backend, LocalCPUBackend")
	case len(c.Directories) == 0 || len(c.Directories) > MaxDirectories:
		return fmt.Errorf("registrar: directories are %d: give 1 to %d", len(c.Directories), MaxDirectories)
	}
	if w.URL != "" {
		if _, err := protocol.ParseEndpoint(w.URL); err != nil {
			return fmt.Errorf("registrar: url: %w", err)
		}
	}
	for i, d := range c.Directories {
		if d.RequestAddr.Host == "" || d.RequestAddr.Port == 0 || d.FeedAddr.Host == "" || d.FeedAddr.Port == 0 {
			return fmt.Errorf("registrar: directory %d listens at %v and %v: give host and port of both", i, d.RequestAddr, d.FeedAddr)
		}
	}
	if err := c.checkCounts(); err != nil {
		return err
	}
	return c.checkTimes()
}

func (c *Config) checkCounts() error {
	for _, b := range [...]struct {
		field     string
		value     int
		from, max int
	}{
		{"heartbeats lost", int(c.HeartbeatsLost), 1, 1 << 20},
		{"operations of a report", c.ReportOperations, 1, 4096},
		{"slots of a batch", c.SyncBatchSlots, 1, 4096},
		{"polls of a sync", int(c.SyncPollsMax), 1, 1 << 20},
		{"batches told again", c.SyncResendMax, 1, 1 << 16},
		{"questions", c.LookupsMax, 1, 1 << 16},
		{"window", int(c.Window), 1, 1 << 10},
		{"hashes of a prefix", c.PrefixMax, 1, c.Wire.HashCount},
		{"holders", c.HoldersMax, 1, c.Wire.HolderCount},
		{"tries", c.TriesMax, 1, MaxDirectories},
		{"answers kept", c.CacheSize, 0, 1 << 20},
	} {
		if b.value < b.from || b.value > b.max {
			return fmt.Errorf("registrar: %s: %d is not within %d and %d", b.field, b.value, b.from, b.max)
		}
	}
	return nil
}

func (c *Config) checkTimes() error {
	for _, b := range [...]struct {
		field string
		value effects.Duration
	}{
		{"patience", c.RequestTimeout},
		{"the least backoff", c.BackoffMin},
		{"time between heartbeats", c.HeartbeatEvery},
		{"time to deregister", c.LeaveTimeout},
		{"time between syncs", c.SyncEvery},
		{"time between polls", c.SyncPoll},
		{"patience of a lookup", c.LookupTimeout},
	} {
		if b.value <= 0 {
			return fmt.Errorf("registrar: %s is %v: give more than 0", b.field, b.value)
		}
	}
	switch {
	case c.BackoffMax < c.BackoffMin:
		return fmt.Errorf("registrar: the most backoff is %v: give at least the least, %v", c.BackoffMax, c.BackoffMin)
	case c.SyncEveryMax < c.SyncEvery:
		return fmt.Errorf("registrar: the most time between syncs is %v: give at least the least, %v", c.SyncEveryMax,
			c.SyncEvery)
	case c.ReportDelay < 0 || c.SyncPause < 0 || c.CacheTime < 0:
		return fmt.Errorf("registrar: times are %v, %v and %v: give 0 or more", c.ReportDelay, c.SyncPause, c.CacheTime)
	}
	return nil
}

// RegistrarNeed returns the number of deadlines and requests that a registrar may have outstanding.
func (c *Config) RegistrarNeed() kernel.Need {
	n := len(c.Directories)
	return kernel.Need{Deadlines: n, Limits: effects.Limits{Sends: connCount * n}}
}

// LookupNeed returns the number of deadlines and requests that lookups may have outstanding.
func (c *Config) LookupNeed() kernel.Need {
	n := len(c.Directories)
	return kernel.Need{Deadlines: n + c.LookupsMax, Limits: effects.Limits{Sends: n * int(max(c.Window, 1))}}
}

// MaxConns returns the number of connections that a registrar and its lookups may have open together.
func (c *Config) MaxConns() int { return (connCount + 1) * len(c.Directories) }

// MaxLookupTime returns the maximum duration of a lookup.
func (c *Config) MaxLookupTime() effects.Duration {
	return effects.Duration(min(c.TriesMax, len(c.Directories))) * c.LookupTimeout
}
