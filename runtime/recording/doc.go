// Package recording writes a recording of a node's state machine, and replays it.
//
// The machine of a node ([rank.Rank]) is pure: two machines that are made with the same configuration, seed and time,
// and that are given the same events at the same times, emit the same effects. A [Recorder] therefore writes the
// configuration and every event to a file, and of the effects only a hash. [Replay] makes the machine again, gives it
// the events, and compares the hash of the effects of each step: every assertion, quarantined page and refused message
// of a production node happens again, in a debugger if need be.
//
// # The ring
//
// A recording is a ring of files. Each file but the first begins with a checkpoint: the state of the machine between two
// steps, as [snapshot.Encode] writes it. A replay makes the machine of the configuration, gives it that state, and goes on
// with the events behind it. When the files have reached their size, the oldest is removed. [Recorder.Save] writes the
// whole ring to one file, in which the further checkpoints stay, so that a replay compares the state there.
//
// # What is in a file
//
// A recording contains the key of the node's incarnation (from which its seed follows), its whole configuration, the
// names of chunks, requests and peers, and the bodies of all messages that the node received. It never contains pages:
// chunks that a message carries are replaced by zeros of the same length. As long as the node runs, a reader of the file
// can pretend to be the node, so only the user of the node can read it.
//
// # Format
//
// A file is a list of frames, each with its length, a CRC-32C and compressed records. The first frame says which build
// wrote the file; the second has the configuration. A checkpoint is a frame of its own. A change of a byte is found by the
// CRC. A file that ends without an end record is of a process that was killed: its last second may be missing.
package recording
