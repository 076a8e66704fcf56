package directory

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/index"
)

// Config holds the limits and times of a directory. [Default] sets every field except Seed.
type Config struct {
	Seed uint64 // secret from which the keys that hide hashes are derived

	Instances            int
	Workers              int // workers of all instances together
	WorkersPerInstance   int // workers of an instance
	WorkersPerConnection int // workers that report on a connection
	LocationsPerWorker   int // locations of a worker
	// Holders limits the holders of all workers together, including holders that a sync or a fade is filling and
	// holders that are not swept away yet. At most index.MaxHolders.
	Holders int

	// Chunks limits the chunks of all locations together: a chunk at two locations counts twice.
	Chunks          int
	HoldersPerChunk int // locations, of one rank, that are recorded for one chunk
	TextBytes       int // bytes of a name, an address or a sync id

	Syncs           int // full syncs in progress at a time
	BatchesPerSync  int // batches of a sync
	HashesPerBatch  int // hashes in a batch of a sync, or operations in a report
	HashesPerLookup int // hashes in a lookup
	PeersPerLookup  int // peers in an answer

	// Silence is the time without any fact from a worker after which the worker is dropped; 0: never.
	Silence effects.Duration
	// HeartbeatersOnly applies Silence only to workers that send heartbeats. Other workers may have nothing to report
	// until they exit.
	HeartbeatersOnly bool
	// Disconnected is the time after which a worker is dropped that has no connection and reports nothing; 0: never.
	Disconnected effects.Duration
	// Yield is the time without facts from a worker after which the worker may be followed by another way: for
	// example, facts about the worker that another directory reports are then accepted.
	Yield effects.Duration
	// SyncTimeout is the time after which a sync without progress, or a sync slot that its worker does not use, is
	// given up.
	SyncTimeout effects.Duration
	// Fade is the time after which records from before a gap in the operations are dropped; 0: never.
	Fade effects.Duration

	SweepRows int // rows of the index that a step examines while sweeping
	// EndsPerStep limits how many workers, syncs and fades, each counted separately, a step ends because their time is
	// over.
	EndsPerStep int
}

// Default returns a configuration for a fleet of a thousand workers. A full directory takes at most 300 MB.
func Default() Config {
	return Config{
		Instances: 1024, Workers: 4096, WorkersPerInstance: 256, WorkersPerConnection: 64, LocationsPerWorker: 8, Holders: 16384,
		Chunks: 10_000_000, HoldersPerChunk: 256, TextBytes: 512,
		Syncs: 16, BatchesPerSync: 16384, HashesPerBatch: 4096, HashesPerLookup: 1000, PeersPerLookup: 8,
		Silence: 300 * effects.Second, Disconnected: 300 * effects.Second,
		Yield: 30 * effects.Second, SyncTimeout: 60 * effects.Second,
		Fade:      600 * effects.Second,
		SweepRows: 4096, EndsPerStep: 64,
	}
}

// Check returns an error that names the first field that is out of bounds.
func (c *Config) Check() error {
	type bound struct {
		field     string
		value     int
		from, max int
	}
	const unlimited = 1 << 31
	for _, b := range [...]bound{
		{"instances", c.Instances, 1, 1 << 20},
		{"workers", c.Workers, 1, 1 << 20},
		{"workers of one instance", c.WorkersPerInstance, 1, c.Workers},
		{"workers of one connection", c.WorkersPerConnection, 1, 1 << 20},
		{"locations", c.LocationsPerWorker, 1, 1 << 10},
		{"holders", c.Holders, 2, index.MaxHolders},
		{"chunks", c.Chunks, 1, unlimited},
		{"locations of a chunk", c.HoldersPerChunk, 1, index.MaxHolders},
		{"bytes of a text", c.TextBytes, 1, 1 << 16},
		{"syncs", c.Syncs, 1, c.Holders},
		{"batches", c.BatchesPerSync, 1, 1 << 20},
		{"hashes", c.HashesPerBatch, 1, 1 << 20},
		{"hashes of a prefix", c.HashesPerLookup, 1, index.MaxPrefix},
		{"peers of an answer", c.PeersPerLookup, 1, 1 << 10},
		{"rows of a sweep", c.SweepRows, 1, unlimited},
		{"ends of a step", c.EndsPerStep, 1, unlimited},
	} {
		if b.value < b.from || b.value > b.max {
			return fmt.Errorf("directory: %s: %d is not within %d and %d", b.field, b.value, b.from, b.max)
		}
	}
	if c.Silence < 0 || c.Disconnected < 0 || c.Yield < 0 || c.Fade < 0 || c.SyncTimeout <= 0 {
		return fmt.Errorf("directory: silence %v, parted %v, yield %v, fade %v and patience %v: none may be less than "+
			"0, nor the last 0", c.Silence, c.Disconnected, c.Yield, c.Fade, c.SyncTimeout)
	}
	return nil
}
