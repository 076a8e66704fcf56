// Package replica is a directory's side of the log that several directories share: what it has to tell the others goes
// into it, and what they tell is read out of it. It knows what an entry is, and no frame in it; whoever runs it reads
// those, and tells package directory.
//
// The log is a server on [effects.ChannelLog], which is asked over two connections, one question at a time on each.
// It may be lost, cut off at either end, slow, down, or somebody else's. So a caller may rely on this:
//
//   - What a directory tells is read by every other one in its order, each thing once. Where anything may be missing in
//     between, the gap has a number, and nothing that was told behind it is read under the number from before.
//   - An entry that was appended twice, because an answer was lost, is read once.
//   - What waits to be appended is bounded; what is beyond is left out, and makes a gap for all who read.
//   - A log that begins anew is read from its start.
//   - The log is bounded by bytes: it keeps about [Config.Bytes] of what was read last, and before so much was read,
//     about [Config.Keep] entries. What is no entry of a directory's size is passed over.
//   - What was read is handed out a frame at a time ([Log.Next]), and nothing more is read before all of it was: a
//     machine that takes a bounded number in a step is never held up by what somebody put into the log.
//   - Where entries of a directory that is followed are missing, [Log.Missed] counts that. Who is late for a log that
//     keeps too little is late again by what it asks for; so it asks ever more seldom ([Log.Again]).
//   - Nothing waits for the log. While it does not answer, [Log.Down] says so.
package replica

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
)

// Config is how a directory uses the log. [Default] has values for each field but the first two.
type Config struct {
	Addr effects.Addr // of the log; without a host there is none
	Life uint64       // a number that no other life of any directory has

	Bytes   int    // that the log keeps, about
	Keep    uint32 // entries that it keeps, before so many bytes were read
	Entry   int    // bytes of frames in an entry, if it has more than one
	Frame   int    // bytes of a frame; a larger one is left out
	Buffer  int    // bytes of frames that wait
	Read    uint32 // entries in one answer; at least Tellers, as each may append one in the time of a read
	Tellers int    // other lives that are followed; of more, those heard last

	Poll     effects.Duration // between two reads that find nothing more
	Patience effects.Duration // with an answer
	Pause    effects.Duration // before a connection that failed is opened again

	Again, AgainMost effects.Duration // after which the same worker is wanted again: the first time, and the longest
}

// Default is for a few directories near their log.
func Default() Config {
	return Config{
		Bytes: 256 << 20, Keep: 20_000, Entry: 16 << 10, Frame: 1 << 20, Buffer: 8 << 20, Read: 64, Tellers: 64,
		Poll: 20 * effects.Millisecond, Patience: 2 * effects.Second, Pause: 500 * effects.Millisecond,
		Again: 5 * effects.Second, AgainMost: 160 * effects.Second,
	}
}

// On says whether there is a log.
func (c *Config) On() bool { return c.Addr.Host != "" }

// Check says what is wrong with it.
func (c *Config) Check() error {
	if !c.On() {
		return nil
	}
	for _, b := range [...]struct {
		field     string
		value     int
		from, max int
	}{
		{"bytes that the log keeps", c.Bytes, 1, 1 << 40},
		{"entries", int(c.Keep), 2, 1 << 30},
		{"bytes of an entry", c.Entry, 1, 1 << 24},
		{"bytes of a frame", c.Frame, 1, 1 << 24},
		{"bytes that wait", c.Buffer, 1, 1 << 30},
		{"entries of an answer", int(c.Read), 1, 1 << 12},
		{"tellers", c.Tellers, 1, 1 << 16},
	} {
		if b.value < b.from || b.value > b.max {
			return fmt.Errorf("replica: %s: %d is not within %d and %d", b.field, b.value, b.from, b.max)
		}
	}
	switch {
	case c.Addr.Port == 0 || c.Life == 0:
		return fmt.Errorf("replica: port %d and life %d: give both", c.Addr.Port, c.Life)
	case int(c.Read) < c.Tellers:
		return fmt.Errorf("replica: %d entries of an answer and %d tellers: give at least as many entries, or a "+
			"directory that follows all of them may never keep up", c.Read, c.Tellers)
	case c.Poll <= 0 || c.Patience <= 0 || c.Pause <= 0 || c.Again <= 0:
		return fmt.Errorf("replica: poll %v, patience %v, pause %v and again %v: give more than 0", c.Poll, c.Patience,
			c.Pause, c.Again)
	case c.AgainMost < c.Again:
		return fmt.Errorf("replica: again at the most %v: give at least again, %v", c.AgainMost, c.Again)
	}
	return nil
}
