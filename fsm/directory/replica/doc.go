// Package replica is a directory's client of the log through which several directories exchange what workers reported
// to each of them. A directory appends its own reports to the log, and reads the reports of the remaining directories
// from the log. The package knows the format of entries but not the content of the frames in an entry: the caller
// (package serve) decodes frames and passes the facts to package directory.
//
// The log is a server on [effects.ChannelLog]. The client uses two connections, a connection for appending and a
// connection for reading, with one request in flight on each. The log may be lost, truncated at either end, slow,
// down, or replaced by another server.
//
// Example:
//
//	l.QueueFrame(kind, body)   // directory A queues a frame
//	l.SendDue(now, out)        // A seals an entry of the queued frames and sends it
//	l.Step(now, replied, out)  // A: the log has stored the entry
//	l.Step(now, replied, out)  // B: the reply to a read contains the entry
//	l.Next()                   // B: returns the frame, with A's incarnation and gap number
//
// A caller may rely on the following:
//
//   - Every other directory reads the frames of a directory in order, each frame once. Wherever frames may be
//     missing, the number Frame.Gaps changes, and frames after the gap are never returned with the number from
//     before.
//   - An entry that was appended twice, because a reply was lost, is read once.
//   - The memory for frames that wait to be appended is bounded. Frames beyond the bound are dropped, and all readers
//     see a gap.
//   - A log that begins anew is read from the start.
//   - The size of the log is bounded in bytes: the log keeps about [Config.LogBytes] of the entries that were read last
//     or, before that much has been read, about [Config.KeepEntries] entries. Content that is larger than any entry of a
//     directory, or is no entry, is skipped.
//   - Frames are returned singly ([Log.Next]), and nothing more is read from the log before all frames were returned.
//     Therefore a machine that takes a bounded number of frames in a step is never delayed by the amount of data in
//     the log.
//   - When entries of a followed directory are missing, [Log.CountMissed] counts the event. A directory that is too slow
//     for a log that keeps too little would be delayed further by the full syncs that it requests; therefore repeated
//     requests are spaced more and more widely ([Log.WantDelays]).
//   - Nothing waits for the log. While the log does not reply, [Log.IsDown] returns true.
package replica

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
)

// Config configures the use of the log. [Default] sets every field except the first two.
type Config struct {
	Addr effects.Addr // address of the log; without a host no log is used
	// Incarnation identifies this incarnation of the directory. No other incarnation of any directory has the same
	// number.
	Incarnation uint64

	LogBytes int // approximate number of bytes that the log keeps
	// KeepEntries is the number of entries that the log keeps until LogBytes bytes have been read.
	KeepEntries uint32
	// EntryBytes limits the bytes of the frames in an entry with more than one frame.
	EntryBytes  int
	FrameBytes  int // bytes of a frame; a larger frame is dropped
	BufferBytes int // bytes of frames that wait to be appended
	// ReadEntries is the number of entries in a reply. At least Authors, because each directory may append an entry
	// while a read is in flight.
	ReadEntries uint32
	// Authors limits the incarnations of directories that are followed; the most recently heard ones are kept.
	Authors int

	PollInterval   effects.Duration // time between two reads when nothing new was found
	RequestTimeout effects.Duration // timeout of a request
	ReconnectDelay effects.Duration // time before a failed connection is opened again

	// WantMin is the time after which the same worker is wanted for the second time; WantMax is the longest time
	// between later repetitions.
	WantMin, WantMax effects.Duration
}

// Default returns a configuration for a few directories near their log.
func Default() Config {
	return Config{
		LogBytes: 256 << 20, KeepEntries: 20_000, EntryBytes: 16 << 10, FrameBytes: 1 << 20, BufferBytes: 8 << 20, ReadEntries: 64, Authors: 64,
		PollInterval: 20 * effects.Millisecond, RequestTimeout: 2 * effects.Second, ReconnectDelay: 500 * effects.Millisecond,
		WantMin: 5 * effects.Second, WantMax: 160 * effects.Second,
	}
}

// IsEnabled reports whether a log is configured.
func (c *Config) IsEnabled() bool { return c.Addr.Host != "" }

// Check returns an error that names the first invalid field. A configuration without a log is valid.
func (c *Config) Check() error {
	if !c.IsEnabled() {
		return nil
	}
	for _, b := range [...]struct {
		field     string
		value     int
		from, max int
	}{
		{"LogBytes", c.LogBytes, 1, 1 << 40},
		{"KeepEntries", int(c.KeepEntries), 2, 1 << 30},
		{"EntryBytes", c.EntryBytes, 1, 1 << 24},
		{"FrameBytes", c.FrameBytes, 1, 1 << 24},
		{"BufferBytes", c.BufferBytes, 1, 1 << 30},
		{"ReadEntries", int(c.ReadEntries), 1, 1 << 12},
		{"Authors", c.Authors, 1, 1 << 16},
	} {
		if b.value < b.from || b.value > b.max {
			return fmt.Errorf("replica: %s: %d is not within %d and %d", b.field, b.value, b.from, b.max)
		}
	}
	switch {
	case c.Addr.Port == 0 || c.Incarnation == 0:
		return fmt.Errorf("replica: Addr.Port %d and Incarnation %d: give both", c.Addr.Port, c.Incarnation)
	case int(c.ReadEntries) < c.Authors:
		return fmt.Errorf("replica: ReadEntries %d and Authors %d: give at least as many entries, or a "+
			"directory that follows all of them may never keep up", c.ReadEntries, c.Authors)
	case c.PollInterval <= 0 || c.RequestTimeout <= 0 || c.ReconnectDelay <= 0 || c.WantMin <= 0:
		return fmt.Errorf("replica: PollInterval %v, RequestTimeout %v, ReconnectDelay %v and WantMin %v: give more than 0",
			c.PollInterval, c.RequestTimeout, c.ReconnectDelay, c.WantMin)
	case c.WantMax < c.WantMin:
		return fmt.Errorf("replica: WantMax %v: give at least WantMin, %v", c.WantMax, c.WantMin)
	}
	return nil
}
