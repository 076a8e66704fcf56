package config

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/protocol"
)

// Compare returns the problems that prevent a sender and a receiver from working together; the arguments may be in
// either order. The result is empty if the nodes can work together. If both nodes have both roles, both directions of
// transfer are checked. Each problem names the file of b, and the remedy names the value of a.
func Compare(a, b *Config) []Problem {
	c := comparison{a: a, b: b, sender: a, receiver: b}
	if !a.CanTransferWith(b) {
		c.addProblem("pd_role", b.Role, "%s is also a %v; a transfer needs one sender and one receiver", a.Name, a.Role)
		return c.problems
	}
	if a.Role.Sends() && b.Role.Receives() {
		c.checkDirection()
	}
	if b.Role.Sends() && a.Role.Receives() {
		c.sender, c.receiver = b, a
		c.checkDirection()
	}
	c.checkInstances()
	if clashOf(&a.Security, &b.Security) {
		c.addProblem(ownPath(securityModeKey), b.Security.Mode, clashRemedy, a.Name, a.Security.Mode)
	}
	return c.problems
}

// CanTransferWith reports whether the two nodes have both roles between them, so that a transfer is possible.
func (c *Config) CanTransferWith(other *Config) bool { return c.Role|other.Role == Both }

// checkDirection runs every check for one direction of transfer.
func (c *comparison) checkDirection() {
	c.checkModes()
	c.checkRecalls()
	c.checkLayerwise()
	c.checkRegister()
	c.checkChunks()
	c.checkPlanes()
	c.checkRanks()
	c.checkPorts()
	c.checkTimes()
	c.checkLimits()
}

// A comparison collects the problems between the nodes a and b, a sender and a receiver.
type comparison struct {
	a, b             *Config
	sender, receiver *Config // a and b again, by role
	problems         []Problem
}

// addProblem records a problem at a field of b, unless the same problem has been recorded already.
func (c *comparison) addProblem(field string, value any, remedy string, args ...any) {
	p := Problem{Code: Disagree, File: c.b.Name, Field: field,
		Value: fmt.Sprint(value), Remedy: fmt.Sprintf(remedy, args...)}
	if !slices.Contains(c.problems, p) { // Comparing in the other direction may have found the same problem.
		c.problems = append(c.problems, p)
	}
}

// addForPair reports a problem that depends on a value at the sender and a value at the receiver. The problem is
// reported at the value of b.
func (c *comparison) addForPair(sender, receiver keyValue, remedy string, args ...any) {
	own := sender
	if c.b == c.receiver {
		own = receiver
	}
	c.addProblem(own.field, own.value, remedy, args...)
}

// A keyValue is a key with the value that a node has for the key.
type keyValue struct {
	field string
	value any
}

// checkModes checks pull mode, delayed pull, the name by which the sender is reached, and the form of replies.
func (c *comparison) checkModes() {
	a, b := c.a.Pull, c.b.Pull
	switch {
	case a.Enabled != b.Enabled:
		c.addProblem("pd_pull_mode", b.Enabled, "%s has %t; a sender that offers needs a receiver that reads: set the same on both",
			c.a.Name, a.Enabled)
	case c.sender.Pull.Delay && !c.receiver.Pull.Delay:
		c.addProblem("pd_delay_pull", b.Delay,
			"%s has %t; the receiver decides, and it would read at once: set pd_delay_pull there, or remove it from the sender",
			c.a.Name, a.Delay)
	}
	named := !(protocol.Endpoint{Host: c.sender.PeerHost}).IsNumeric()
	if s, r := c.sender, c.receiver; s.Pull.Enabled && !r.Link.PeerNames && named {
		c.addForPair(keyValue{peerHostKey, s.PeerHost}, keyValue{ownPath("link.peer_names"), r.Link.PeerNames},
			"the sender gives the name %s as the address where it accepts messages, and the receiver accepts only addresses, "+
				"so it would refuse all offers; write the sender's pd_peer_host as an address, or set link.peer_names: true "+
				"at the receiver",
			s.PeerHost)
	}
	if a, b := c.a.Machine.ReplyForm, c.b.Machine.ReplyForm; a != b && c.sender.Machine.ReplyForm != protocol.FormAscend {
		c.addProblem(ownPath("reply_form"), b,
			"%s has %v; the receiver decides and the sender reads every form, so remove it from the sender", c.a.Name, a)
	}
}

// checkChunks checks that the pages of both nodes have equal contents and size. The sizes of the pools may differ.
func (c *comparison) checkChunks() {
	a, b := c.a, c.b
	if a.ChunkTokens != b.ChunkTokens {
		c.addProblem("chunk_size", b.ChunkTokens, "%s has %d; keys of different chunks never match", a.Name, a.ChunkTokens)
	}
	if a.Data.Checksums != b.Data.Checksums {
		c.addProblem(ownPath(checksumKey), checksumWord(b), "%s has %s; set transfer on both, or chunks that one of them sends are not "+
			"compared", a.Name, checksumWord(a))
	}
	if unset := (protocol.Layout{}); a.Layout == unset || b.Layout == unset {
		return // The engine supplies the other layout, and the handshake compares them.
	}
	if a.Layout.Dtype != b.Layout.Dtype {
		c.addProblem(ownPath("layout.dtype"), b.Layout.Dtype, "%s has %v; elements are not converted during a transfer", a.Name,
			a.Layout.Dtype)
	}
	if a.Layout.Format != b.Layout.Format {
		c.addProblem(ownPath("layout.mla"), b.Layout.Format == protocol.FormatKVMLA,
			"%s has format %v and this is %v; set layout.mla to the same on both", a.Name, a.Layout.Format, b.Layout.Format)
	} else if oneTokenShape(c.comparedLayout(a)) != oneTokenShape(c.comparedLayout(b)) {
		c.addProblem(ownPath("layout"), c.describePages(b), "%s has %s; give both the same layers, heads and head size", a.Name,
			c.describePages(a))
	}
}

// checksumWord returns the value of data.checksum.
func checksumWord(c *Config) string {
	if c.Data.Checksums {
		return "transfer"
	}
	return "off"
}

// comparedLayout returns the layout by which a node is compared. For a layerwise sender with a receiver that is not
// layerwise, the result is the layout of whole chunks.
func (c *comparison) comparedLayout(node *Config) protocol.Layout {
	if c.sender.Layerwise.Enabled && !c.receiver.Layerwise.Enabled && node == c.sender {
		if whole, _, ok := node.Layout.AllLayers(node.Machine.Layers); ok {
			return whole
		}
	}
	return node.Layout
}

// oneTokenShape returns the shape of a layout for a single token, because the number of tokens of a chunk is compared
// separately.
func oneTokenShape(l protocol.Layout) protocol.Shape {
	l, _ = l.WithTokens(1) // A validated layout has tokens.
	return l.Shape
}

func (c *comparison) describePages(node *Config) string {
	pages, bytes := c.comparedLayout(node), node.PageBytes
	if pages != node.Layout {
		bytes *= uint64(node.Machine.Layers)
	}
	return fmt.Sprintf("shape %v, pages of %d bytes", pages.Shape, bytes)
}

func (c *comparison) checkPlanes() {
	a, b := c.a, c.b
	switch {
	case (a.Channel == ChannelHCCL) != (b.Channel == ChannelHCCL):
		c.addProblem("transfer_channel", b.Channel,
			"%s has %v, so they have no plane in common; auto is hccl only if pd_buffer_device is npu: set hccl on both, or "+
				"on neither", a.Name, a.Channel)
	case (a.Channel == ChannelNIXL) != (b.Channel == ChannelNIXL):
		c.addProblem("transfer_channel", b.Channel,
			"%s has %v, so they have no plane in common; auto is never nixl: set nixl on both, or on neither", a.Name, a.Channel)
	case a.Channel != b.Channel && a.Channel != ChannelAuto && b.Channel != ChannelAuto:
		c.addProblem("transfer_channel", b.Channel,
			"%s has %v, so they have no plane in common; set one of them to auto, or both to the same", a.Name, a.Channel)
	case a.Channel == ChannelHCCL:
		c.checkHCCL()
	case !a.HasLeasedPlane() && a.Channel != ChannelTCP && b.Channel != ChannelTCP && a.Data.SHMDir != b.Data.SHMDir:
		c.addProblem(ownPath("data.shm_dir"), b.Data.SHMDir, "%s has %q; both ends on one host must use the same directory", a.Name,
			a.Data.SHMDir)
	}
}

// checkHCCL checks the parameters that both ends of a communicator must have in common.
func (c *comparison) checkHCCL() {
	a, b := c.a.HCCL, c.b.HCCL
	if a.Sequence != b.Sequence && a.Sequence != SequenceAuto && b.Sequence != SequenceAuto {
		c.addProblem(ownPath("hccl.sequence"), b.Sequence, "%s has %v; set one of them to auto, or both to the same", c.a.Name,
			a.Sequence)
	} else if a.Bootstrap != b.Bootstrap {
		c.addProblem(ownPath("hccl.bootstrap"), b.Bootstrap, "%s has %v; set both to the same", c.a.Name, a.Bootstrap)
	}
}

// checkTimes checks timeouts and leases of one node against the timeouts and leases of the peer.
func (c *comparison) checkTimes() {
	if s, r := c.sender.Machine.ReplyTimeout, c.receiver.Machine.AllocTimeout; s <= r {
		c.addForPair(keyValue{ownPath("link.request_timeout"), s}, keyValue{c.receiver.allocTimeoutKey, r},
			"the sender waits %v for an answer and the receiver's allocations up to %v for pages, so a refusal would come too "+
				"late; make the sender's link.request_timeout longer", s, r)
	}
	leased := !c.sender.Pull.Enabled || c.sender.Machine.Recalls // the receiver grants leases to the sender
	if g, l := c.sender.Machine.LeaseGuard, c.receiver.Machine.Lease; leased && g >= l {
		c.addForPair(keyValue{ownPath("lease_guard"), g}, keyValue{ownPath("lease"), l},
			"the receiver's grants are valid for %v and the sender starts nothing in their last %v, so nothing would ever be "+
				"sent; make the sender's lease_guard shorter, or the receiver's lease longer", l, g)
	}
	if ttl, guard := c.sender.Machine.PullTTL, c.receiver.Machine.LeaseGuard; c.sender.Pull.Enabled && ttl <= guard {
		c.addForPair(keyValue{"pd_pull_pending_ttl", ttl}, keyValue{ownPath("lease_guard"), guard},
			"the sender's offers are valid for %v and the receiver starts no read in their last %v, so it would never read; "+
				"make the sender's pd_pull_pending_ttl longer, or the receiver's lease_guard shorter", ttl, guard)
	} else if lead := c.receiver.Machine.LeadMin; c.sender.Pull.Enabled && c.receiver.Pull.Delay && ttl <= guard+lead {
		c.addForPair(keyValue{"pd_pull_pending_ttl", ttl}, keyValue{ownPath("pull.lead_min"), lead},
			"the sender's offers are valid for %v and the receiver accepts no offer that ends within its lease_guard of %v "+
				"and %v more, so it would refuse all; make the sender's pd_pull_pending_ttl longer, or the receiver's "+
				"pull.lead_min shorter",
			ttl, guard, lead)
	}
}

// checkInstances reports two nodes with the same name at a directory: the reports of each node would replace the
// reports of its namesake.
func (c *comparison) checkInstances() {
	a, b := &c.a.Share, &c.b.Share
	if len(a.Feeds) > 0 && len(b.Feeds) > 0 && a.Instance == b.Instance {
		c.addProblem(instanceKey, b.Instance, "%s has the same name, and directories identify a worker by its name and rank; "+
			"give each node a different name", c.a.Name)
	}
}

func (c *comparison) checkLimits() {
	if s, r := c.sender.Limits.ArrayLen, c.receiver.Limits.ArrayLen; s > r {
		c.addProblem(ownPath(keysPerBatchKey), c.b.Limits.ArrayLen,
			"the sender may send %d keys at once and the receiver takes %d; make the receiver's limit as large", s, r)
	}
	if s, r := c.sender.Limits.KeyBytes, c.receiver.Limits.KeyBytes; s > r {
		c.addProblem(ownPath("limits.key_bytes"), c.b.Limits.KeyBytes,
			"the sender may send keys of %d bytes and the receiver takes %d; make the receiver's limit as large", s, r)
	}
	if s, r := c.sender.Limits.MessageBytes, c.receiver.Limits.MessageBytes; s > r {
		c.addProblem(ownPath(messageBytesKey), c.b.Limits.MessageBytes,
			"the sender may send %d bytes at once and the receiver takes %d; make the receiver's limit as large", s, r)
	}
}
