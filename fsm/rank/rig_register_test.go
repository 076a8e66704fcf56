package rank

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/protocol"
)

// pushTag is what a word on registrations is, and what is notable of it.
func pushTag(body []byte) string {
	lim := protocol.DefaultLimits()
	var reg protocol.PushRegistration
	var keep protocol.PushKeep
	var end protocol.PushEnd
	switch protocol.PushKindOf(body) {
	case protocol.PushKindRegistration:
		if reg.Decode(body, &lim) == nil {
			return fmt.Sprintf("PUSH_REG (%s, try %d, blocks %v, %d pages)", reg.RequestID, reg.Ext.Attempt, reg.Blocks,
				len(reg.Ext.Generations))
		}
	case protocol.PushKindWithdrawal:
		return "PUSH_OFF"
	case protocol.PushKindKeep:
		if keep.Decode(body, &lim) == nil {
			return fmt.Sprintf("PUSH_KEEP (keep %s, skip %s)", keep.Keep, keep.Skip)
		}
	case protocol.PushKindUnknown:
		if end.Decode(body, &lim) == nil {
			text := "PUSH_END (" + effects.CodeFromWire(end.Code).String()
			if len(end.Reason) > 0 {
				text += ": " + string(end.Reason)
			}
			return text + ")"
		}
	}
	return "garbage"
}

func numbers(words []string, otherwise ...uint32) []uint32 {
	for i, w := range words {
		n, err := strconv.ParseUint(w, 10, 32)
		if err != nil {
			panic(err)
		}
		if i < len(otherwise) {
			otherwise[i] = uint32(n)
		} else {
			otherwise = append(otherwise, uint32(n))
		}
	}
	return otherwise
}

// registerBlocks has a rank register blocks of its engine's.
func registerBlocks(cfg *Config, cells, layers, groups []string, name string) {
	c, l, of := numbers(cells, 1, 0, 1, 4), numbers(layers, 1, 0, 0, 1), numbers(groups)
	g := &geometry.Geometry{
		Ranks: c[0], Rank: c[1], Heads: c[2], CellHeads: min(1, c[2]), Blocks: c[3], PerLogical: 1, BlockTokens: 4,
		Stages: l[0], Stage: l[1],
	}
	for i := range l[3] {
		x := geometry.Layer{Number: l[2] + i}
		if len(of) > 0 {
			x.Group = uint16(of[i])
		}
		g.Layers = append(g.Layers, x)
	}
	cfg.Geometry, cfg.Pages, cfg.Role = g, uint32(g.CountPages()), RoleBoth
	cfg.EngineID = strings.TrimRight(name, "0123456789")
	cfg.RegistrationLease = 6 * effects.Second
}

// registering builds a command on registered blocks.
func (r *rig) registering(_ *node, name string, arg func(string) []string) effects.CommandBody {
	one := func(key, otherwise string) string {
		if v := arg(key); len(v) > 0 {
			return v[0]
		}
		return otherwise
	}
	ms := func(key string) effects.Duration {
		return effects.Duration(numbers([]string{one(key, "0")})[0]) * effects.Millisecond
	}
	var peers []register.Peer
	for _, host := range arg("from") {
		peers = append(peers, register.Peer{Host: host, InitPort: 1, Port: 2})
	}
	var blocks []geometry.Blocks
	list := func(group uint16, key, first string, otherwise ...uint32) {
		if v := arg(key); v != nil {
			otherwise = numbers(v)
		}
		if len(otherwise) > 0 {
			blocks = append(blocks, geometry.Blocks{
				Group: group, First: uint64(numbers([]string{one(first, "0")})[0]), Logical: otherwise,
			})
		}
	}
	list(1, "blocks1", "first1")
	if other := blocks; arg("blocks") != nil || other == nil {
		blocks = nil
		list(0, "blocks", "first", 0, 1)
		blocks = append(blocks, other...)
	}
	request, transfer := []byte(one("request", "")), []byte(one("transfer", ""))
	either := func(id string) []byte {
		if len(request) > 0 {
			return request
		}
		return []byte(id)
	}
	switch name {
	case "register":
		return &register.Register{
			Request: either("r1-00000001"), Transfer: transfer, Engine: []byte(one("engine", "")), Producers: peers,
			Ranks: numbers([]string{one("ranks", "1")})[0], Stages: numbers([]string{one("stages", "1")})[0], Blocks: blocks,
			Timeout: ms("wait_ms"),
		}
	case "finished":
		return &register.Finished{
			Request: either("r1-00000002"), Transfer: transfer, Blocks: blocks, Lease: ms("lease_ms"),
		}
	case "aborted":
		return &register.Aborted{Request: either("r1-00000002"), Transfer: transfer}
	case "expect":
		return &register.Expect{Request: either("r1-00000001"), Transfer: transfer, Producers: peers, Timeout: ms("wait_ms")}
	case "notneeded":
		return &register.NotNeeded{
			Request: either("r1-00000001"), Transfer: transfer, Producers: peers, Timeout: ms("wait_ms"),
		}
	}
	return nil
}
