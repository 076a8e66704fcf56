package doctor

import (
	"fmt"
	"strconv"
	"strings"
)

// formatSize returns a number of bytes as text with up to four digits and a binary unit.
func formatSize(bytes uint64) string {
	const units = "KMGTPE"
	if bytes < 1<<10 {
		return fmt.Sprintf("%d bytes", bytes)
	}
	value, unit := float64(bytes)/(1<<10), 0
	for value >= 1023.5 && unit < len(units)-1 {
		value, unit = value/(1<<10), unit+1
	}
	decimals := 0
	if value < 9.95 {
		decimals = 1
	}
	digits := strings.TrimSuffix(strconv.FormatFloat(value, 'f', decimals, 64), ".0")
	return fmt.Sprintf("%s %ciB", digits, units[unit])
}
