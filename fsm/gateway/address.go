package gateway

import (
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
)

// scheme begins the host part of the address of a plain engine's rank. No real host name can begin so.
const scheme = "vllm://"

// A PlainRank is a rank of a plain engine, addressed by its engine's side channel.
type PlainRank struct {
	Host          string
	Port          uint16
	Stage, Stages uint32
	Rank, Ranks   uint32
}

// Addr returns the address by which a rank here connects to the place.
func (p PlainRank) Addr() effects.Addr {
	return effects.Addr{
		Host: scheme + p.Host + "/pp" + formatPosition(p.Stage, p.Stages) + "/tp" + formatPosition(p.Rank, p.Ranks), Port: p.Port,
	}
}

// formatPosition returns a text such as 2of4.
func formatPosition(i, n uint32) string {
	return formatDecimal(uint64(i)) + "of" + formatDecimal(uint64(n))
}

// formatDecimal returns n in decimal digits.
func formatDecimal(n uint64) string { return strconv.FormatUint(n, 10) }

// IsPlain reports whether an address is that of a plain engine.
func IsPlain(a effects.Addr) bool { return strings.HasPrefix(a.Host, scheme) }

// ParsePlainRank parses an address, and reports false if the address is not that of a plain engine's rank.
func ParsePlainRank(a effects.Addr) (p PlainRank, ok bool) {
	rest, ok := strings.CutPrefix(a.Host, scheme)
	if !ok || a.Port == 0 {
		return p, false
	}
	rest, tp, ok := cutLast(rest, "/tp")
	if !ok {
		return p, false
	}
	host, pp, ok := cutLast(rest, "/pp")
	if !ok || host == "" {
		return p, false
	}
	p = PlainRank{Host: host, Port: a.Port}
	if p.Stage, p.Stages, ok = parsePosition(pp, geometry.StagesMax); !ok {
		return p, false
	}
	p.Rank, p.Ranks, ok = parsePosition(tp, geometry.RanksMax)
	return p, ok
}

// cutLast splits s around the last sep.
func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// parsePosition reads a text such as 2of4; the second number must not exceed limit.
func parsePosition(s string, limit uint64) (i, n uint32, ok bool) {
	a, b, found := strings.Cut(s, "of")
	x, err := strconv.ParseUint(a, 10, 32)
	y, err2 := strconv.ParseUint(b, 10, 32)
	if !found || err != nil || err2 != nil || x >= y || y > limit {
		return 0, 0, false
	}
	return uint32(x), uint32(y), true
}
