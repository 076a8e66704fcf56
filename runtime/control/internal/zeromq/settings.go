package zeromq

import (
	"fmt"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
)

// OrDefault sets a field that is zero to the default.
func OrDefault[T int | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// A Number is a numeric setting with bounds.
type Number struct {
	Name            string
	Value, Min, Max int
}

// A Duration is a setting that must lie between 1 ms and 1 h.
type Duration struct {
	Name  string
	Value time.Duration
}

// CheckSettings returns an error for the first setting that is out of bounds.
func CheckSettings(numbers []Number, durations []Duration) error {
	for _, f := range numbers {
		if f.Value < f.Min || f.Value > f.Max {
			return &control.Error{
				Code: effects.Invalid, What: fmt.Sprintf("%s %d", f.Name, f.Value),
				Remedy: fmt.Sprintf("set it between %d and %d, or to 0 for the default", f.Min, f.Max),
			}
		}
	}
	for _, f := range durations {
		if f.Value < time.Millisecond || f.Value > time.Hour {
			return &control.Error{
				Code: effects.Invalid, What: fmt.Sprintf("%s %s", f.Name, f.Value),
				Remedy: "set it between 1ms and 1h, or to 0 for the default",
			}
		}
	}
	return nil
}

// CheckAtLeast returns an error if a setting is smaller than lowest; reason names the setting that needs
// this value.
func CheckAtLeast(name string, value int, lowest int, reason string) error {
	if value >= lowest {
		return nil
	}
	return &control.Error{Code: effects.Invalid, What: fmt.Sprintf("%s %d", name, value),
		Remedy: fmt.Sprintf("set it to at least %s, which is %d", reason, lowest)}
}
