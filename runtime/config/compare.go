package config

import (
	"fmt"

	"github.com/kvferry/kvferry/protocol"
)

// Compare returns what keeps a sender and a receiver from working together, in either order; nothing
// if they would. Each problem names the file of b, and in its remedy what a says.
func Compare(a, b *Config) []Problem {
	c := comparison{a: a, b: b}
	if a.Role == b.Role {
		c.add("pd_role", b.Role, "%s is a %v too; a push needs one sender and one receiver", a.Name, a.Role)
		return c.problems
	}
	sender, receiver := a, b
	if a.Role == Receiver {
		sender, receiver = b, a
	}
	if a.ChunkTokens != b.ChunkTokens {
		c.add("chunk_size", b.ChunkTokens, "%s has %d; keys of different chunks never match", a.Name, a.ChunkTokens)
	}
	if none := (protocol.Layout{}); a.Layout != b.Layout && a.Layout != none && b.Layout != none {
		c.add(ownPath("layout"), describe(b.Layout), "%s has %s; pages must be equal", a.Name, describe(a.Layout))
	}
	if a.Channel != b.Channel && a.Channel != ChannelAuto && b.Channel != ChannelAuto {
		c.add("transfer_channel", b.Channel, "%s has %v; set one of them to auto, or both to the same", a.Name, a.Channel)
	}
	if a.Channel != ChannelTCP && b.Channel != ChannelTCP && a.Data.SHMDir != b.Data.SHMDir {
		c.add(ownPath("data.shm_dir"), b.Data.SHMDir, "%s has %q; both ends on one host look into the same folder", a.Name, a.Data.SHMDir)
	}
	if s, r := sender.Ranks(), receiver.Ranks(); s > 0 && s != r {
		c.add("pd_peer_init_port", b.Ranks(), "%s serves %d ranks; ports are indexed by the sender's rank", a.Name, a.Ranks())
	}
	if sender.PeerHost != "" && sender.PeerHost == receiver.PeerHost {
		c.samePorts()
	}
	if s, r := sender.Link.RequestTimeout, receiver.Push.AllocTimeout; s <= r {
		c.add(ownPath("link.request_timeout"), s, "the receiver's allocations wait up to %v, so its refusal would come too late; make the sender's request_timeout longer", r)
	}
	if s, r := sender.Limits.ArrayLen, receiver.Limits.ArrayLen; s > r {
		c.add(ownPath("limits.keys_per_batch"), b.Limits.ArrayLen, "the sender may send %d keys at once and the receiver takes %d; make the receiver's limit as large", s, r)
	}
	if s, r := sender.Limits.MessageBytes, receiver.Limits.MessageBytes; s > r {
		c.add(ownPath("limits.message_bytes"), b.Limits.MessageBytes, "the sender may send %d bytes at once and the receiver takes %d; make the receiver's limit as large", s, r)
	}
	return c.problems
}

type comparison struct {
	a, b     *Config
	problems []Problem
}

func (c *comparison) add(field string, value any, remedy string, args ...any) {
	c.problems = append(c.problems, Problem{Code: Disagree, File: c.b.Name, Field: field,
		Value: fmt.Sprint(value), Remedy: fmt.Sprintf(remedy, args...)})
}

// samePorts finds ports that both want on the host they share.
func (c *comparison) samePorts() {
	taken := map[uint16]bool{}
	for _, p := range [][]uint16{c.a.InitPorts, c.a.AllocPorts, c.a.Data.TCPPorts} {
		for _, port := range p {
			taken[port] = true
		}
	}
	for _, l := range []struct {
		name  string
		ports []uint16
	}{{"pd_peer_init_port", c.b.InitPorts}, {"pd_peer_alloc_port", c.b.AllocPorts}, {ownPath("data.tcp_port"), c.b.Data.TCPPorts}} {
		for _, port := range l.ports {
			if taken[port] {
				c.add(l.name, port, "%s has this port on the same host; give one of them another", c.a.Name)
			}
		}
	}
}

func describe(l protocol.Layout) string {
	return fmt.Sprintf("%v %v %v", l.Format, l.Shape, l.Dtype)
}
