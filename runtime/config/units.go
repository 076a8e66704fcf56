package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// parseBool parses the words for a bool that PyYAML and LMCache's environment accept.
func parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "true", "yes", "on", "1":
		return true, nil
	case "false", "no", "off", "0":
		return false, nil
	}
	return false, fmt.Errorf("write true or false")
}

// parseUint parses a decimal or 0x integer. A leading zero is refused, because YAML 1.1 would read octal and YAML 1.2
// decimal, and the two ends may use different versions.
func parseUint(s string) (uint64, error) {
	digits := strings.ReplaceAll(s, "_", "")
	if len(digits) > 1 && digits[0] == '0' && digits[1] != 'x' && digits[1] != 'X' {
		return 0, fmt.Errorf("write a whole number without a leading zero")
	}
	n, err := strconv.ParseUint(digits, 0, 64)
	if err != nil {
		return 0, fmt.Errorf("write a whole number")
	}
	return n, nil
}

// sizeUnits are tried in order, so a longer suffix precedes a shorter suffix at its end.
var sizeUnits = []struct {
	suffix string
	bytes  uint64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// parseSize parses a number of bytes, for example 67108864 or 64MiB. 64MB is 64,000,000.
func parseSize(s string) (uint64, error) {
	unit := uint64(1)
	for _, u := range sizeUnits {
		if number, ok := strings.CutSuffix(s, u.suffix); ok {
			s, unit = strings.TrimRight(number, " "), u.bytes
			break
		}
	}
	n, err := parseUint(s)
	if err != nil {
		return 0, fmt.Errorf("write bytes as a whole number, or with a unit: KiB, MiB, GiB, TiB, KB, MB, GB or TB")
	}
	if n > math.MaxInt64/unit {
		return 0, fmt.Errorf("write a size below 2^63 bytes")
	}
	return n * unit, nil
}

// parseSeconds parses a number of seconds with or without decimals, or a text with units, for example 250ms or 1m30s.
func parseSeconds(s string) (time.Duration, error) {
	if d, err := time.ParseDuration(s); err == nil {
		return d, nil
	}
	f, err := parseFloat(s)
	if err != nil {
		return 0, fmt.Errorf("write seconds such as 2.5, or a text with a unit such as 250ms")
	}
	if math.IsInf(f, 0) {
		return 0, fmt.Errorf("write a finite number of seconds: infinite waits are not supported")
	}
	// The result is exact in the range of the keys: for up to a day, a float64 of seconds is accurate to a hundredth
	// of a nanosecond.
	ns := math.Round(f * float64(time.Second))
	if math.Abs(ns) >= 1<<63 {
		return 0, fmt.Errorf("write fewer seconds")
	}
	return time.Duration(ns), nil
}

// parsePercent parses a percentage into millionths, exactly. With LMCache's floats, 100 - 2.2 would be less than 97.8.
func parsePercent(s string) (uint32, error) {
	const decimalsMax, digitsMax = 4, 3
	whole, decimals, _ := strings.Cut(strings.TrimSuffix(s, "%"), ".")
	decimals = strings.TrimRight(decimals, "0")
	if whole == "" || len(whole) > digitsMax || len(decimals) > decimalsMax ||
		strings.Trim(whole+decimals, "0123456789") != "" {
		return 0, fmt.Errorf("write a percentage from 0 to 100 with at most four decimals, such as 2.5")
	}
	for len(decimals) < decimalsMax {
		decimals += "0"
	}
	ppm, err := strconv.ParseUint(whole+decimals, 10, 32)
	if err != nil || ppm > 1e6 {
		return 0, fmt.Errorf("write a percentage from 0 to 100")
	}
	return uint32(ppm), nil
}

// formatPercent renders millionths in the form that parsePercent reads.
func formatPercent(ppm uint32) string {
	const ppmOfOne = 10_000
	s := fmt.Sprintf("%d.%04d", ppm/ppmOfOne, ppm%ppmOfOne)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// parseFloat parses a YAML number. Infinities are accepted, but not NaN and not Go's hexadecimal forms.
func parseFloat(s string) (float64, error) {
	switch strings.ToLower(s) {
	case ".inf", "+.inf", "inf", "+inf", "infinity":
		return math.Inf(1), nil
	case "-.inf", "-inf", "-infinity":
		return math.Inf(-1), nil
	}
	if strings.ContainsAny(s, "xXpPnN_") {
		return 0, strconv.ErrSyntax
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, strconv.ErrSyntax
	}
	return f, nil
}

// formatSize renders a size in the form that parseSize reads, in the largest unit that gives a whole number.
func formatSize(n uint64) string {
	for _, u := range []struct {
		suffix string
		bytes  uint64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n > 0 && n%u.bytes == 0 {
			return fmt.Sprintf("%d%s", n/u.bytes, u.suffix)
		}
	}
	return strconv.FormatUint(n, 10)
}

// formatSeconds renders a duration in seconds, which is the form that both parseSeconds and LMCache read.
func formatSeconds(d effects.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(effects.Second), 'f', -1, 64)
}
