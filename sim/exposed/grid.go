package exposed

import "github.com/kvferry/kvferry/effects"

// Models returns the models of the grid. The compute time of a layer assumes 200 TFLOP/s and the weights that each of
// 8,292 tokens passes through.
func Models() []Model {
	return []Model{
		{"Qwen3-8B", 36, 4096, 18 * effects.Millisecond},
		{"Llama-3-70B", 80, 4096, 72 * effects.Millisecond},
		{"DeepSeek-V3", 61, 1152, 50 * effects.Millisecond},
	}
}

// Links returns the links of the grid.
func Links() []Link {
	of := func(name string, gbit uint64) Link {
		return Link{name, gbit * 125_000_000, 100 * effects.Microsecond, 50 * effects.Microsecond}
	}
	return []Link{of("1 Gbit/s", 1), of("5 Gbit/s", 5), of("10 Gbit/s", 10), of("25 Gbit/s", 25), of("100 Gbit/s", 100),
		of("400 Gbit/s", 400)}
}

// A Cell holds the measurements of a model over a link.
type Cell struct {
	Model Model
	Link  Link
	Left  [3]effects.Duration // exposed time, indexed by Mode
}

// MeasureGrid measures every model over every link and returns the first error of a measurement.
func Grid() (all []Cell, err error) {
	for _, m := range Models() {
		for _, l := range Links() {
			c := Cell{Model: m, Link: l}
			for how := range c.Left {
				if c.Left[how], err = Measure(m, l, How(how)); err != nil {
					return nil, err
				}
			}
			all = append(all, c)
		}
	}
	return all, nil
}
