package runtime

import (
	"errors"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/config"
)

// The arguments of calls are checked here, before the machine receives the command. The machine refuses the same
// calls, but reports only a code. Each error names the argument in the terms of the caller, the value that was given,
// the values that are accepted, and a remedy.

// argumentError returns the error of a call with the invalid value given in the argument field, where want describes
// the accepted values.
func argumentError(op, field, given, want, remedy string) *Error {
	return &Error{Op: op, Code: effects.Invalid, Stage: effects.StageCommand, Field: field, Theirs: given, Ours: want,
		Remedy: remedy}
}

// tooLargeError returns the same error as wrong, with the code TooLarge, for an argument that can never fit.
func tooLargeError(op, field, given, want, remedy string) *Error {
	e := argumentError(op, field, given, want, remedy)
	e.Code = effects.TooLarge
	return e
}

// formatRange renders the range of a count, for example "1 to 8", or one number if to is not larger than from.
func formatRange(from, to int) string {
	if to <= from {
		return strconv.Itoa(from)
	}
	return strconv.Itoa(from) + " to " + strconv.Itoa(to)
}

// requireSide returns an error if the node does not have the given role, or if the pool is the engine's own.
func (n *Node) requireSide(op string, side config.Role) error {
	if n.role&side == side && n.blockGeometry == nil {
		return nil
	}
	if err := n.tickets.refusalForWork(op); err != nil {
		return err // A node that has ended is the more important fact.
	}
	if n.blockGeometry != nil {
		e := argumentError(op, "register.engine_id", "set", "unset",
			"the pool is the engine's own memory: use the Consumer or the Producer, or remove register.engine_id")
		e.Code = effects.Unsupported
		return e
	}
	e := argumentError(op, "pd_role", n.role.String(), side.String(),
		"use a node with that role, or change pd_role of this node")
	e.Code = effects.Unsupported
	return e
}

// checkKeys returns an error that names the first invalid key.
func (n *Node) checkKeys(op string, keys []string) error {
	return n.checkKeysUpTo(op, keys, n.keyBytesMax)
}

// checkKeysUpTo is checkKeys for keys of at most maxBytes bytes.
func (n *Node) checkKeysUpTo(op string, keys []string, maxBytes int) error {
	for i, key := range keys {
		err := protocol.CheckKey([]byte(key), maxBytes)
		if err == nil {
			continue
		}
		field := "Keys[" + strconv.Itoa(i) + "]"
		if bad := (*protocol.KeyError)(nil); errors.As(err, &bad) && bad.Code == protocol.KeyTooLong {
			return tooLargeError(op, field, strconv.Itoa(len(key))+" bytes", "at most "+strconv.Itoa(maxBytes),
				"shorten the model's name, or raise limits.key_bytes at both ends")
		}
		return argumentError(op, field, strconv.Quote(truncate(key)), "a key", strings.TrimPrefix(err.Error(), "key: "))
	}
	return nil
}

// checkReportableKeys returns an error that names the first key that cannot be reported to a directory. Every key is
// accepted if the node has no directories.
func (n *Node) checkReportableKeys(op string, keys []string) error {
	if !n.hasDirectories {
		return nil
	}
	for i, key := range keys {
		if _, ok := protocol.ChunkHashOfKey([]byte(key)); !ok {
			return argumentError(op, "Keys["+strconv.Itoa(i)+"]", strconv.Quote(truncate(key)),
				"a key whose chunk hash has at most 64 bits",
				"directories can name only such chunks: hash chunks with 64 bits, or set enable_controller: false")
		}
	}
	return nil
}

// truncate returns s, truncated to 80 bytes with "..." appended if s is longer.
func truncate(s string) string {
	const maxBytes = 80
	if len(s) <= maxBytes {
		return s
	}
	return s[:maxBytes] + "..."
}

// normalizeHost replaces the host of a peer by the form that the machine and all nodes use, without the brackets of a
// URL. The result is an error if the host is invalid. An empty host is left for the caller to judge.
func normalizeHost(op, field string, host *string) error {
	if *host == "" {
		return nil
	}
	plain, err := config.ParseHost(*host)
	if err != nil {
		return argumentError(op, field, strconv.Quote(truncate(*host)), "a host", err.Error())
	}
	*host = plain
	return nil
}

// checkPut returns an error if an argument of a put is invalid. The keys are not checked.
func (n *Node) checkPut(p *Put) error {
	if err := normalizeHost("put", "Peer.Host", &p.Peer.Host); err != nil {
		return err
	}
	if p.Pages == nil || p.Pages.node != n {
		given := "nil"
		if p.Pages != nil {
			given = "of another node"
		}
		return argumentError("put", "Pages", given, "a handle of this node", "reserve them from this Sender")
	}
	count, pages, tokens := len(p.Keys), p.Pages.Len(), int(n.layout.TokenCount())
	switch {
	case p.Peer.Host == "":
		return argumentError("put", "Peer.Host", "empty", "a host", "give the receiver's pd_peer_host")
	case p.Peer.InitPort == 0:
		return argumentError("put", "Peer.InitPort", "0", "a port", "give the receiver's pd_peer_init_port")
	case p.Peer.AllocPort == 0:
		return argumentError("put", "Peer.AllocPort", "0", "a port", "give the receiver's pd_peer_alloc_port")
	case count == 0:
		return argumentError("put", "Keys", "empty", "at least one", "name each chunk by its key")
	case count > pages:
		return argumentError("put", "len(Keys)", strconv.Itoa(count), "at most "+strconv.Itoa(pages),
			"the handle has too few pages: reserve one page for each key")
	case p.First < 0 || p.First > pages-count:
		return argumentError("put", "First", strconv.Itoa(p.First), formatRange(0, pages-count),
			"the handle needs a page for each key, from this index on")
	case !p.Pages.ownsPages(p.First, count):
		return argumentError("put", "Pages", "already stored", "pages that still belong to the handle",
			"the pages belong to the cache: put them before they are stored")
	case p.LastChunkTokens < 0 || p.LastChunkTokens > tokens:
		return argumentError("put", "LastChunkTokens", strconv.Itoa(p.LastChunkTokens), formatRange(1, tokens),
			"set 0 for a full chunk")
	case p.Last && p.Request == "":
		return argumentError("put", "Request", "empty", "the proxy's id of the request",
			"set the request, or leave Last false")
	case len(p.Request) > int(n.cfg.RequestIDMax):
		return tooLargeError("put", "Request", strconv.Itoa(len(p.Request))+" bytes", "at most "+strconv.Itoa(int(n.cfg.RequestIDMax)),
			"shorten it, or raise limits.request_bytes")
	}
	return nil
}
