package config

// A Size is a number of bytes as the value of a command's flag, written as in the keys of a file, for example 64MiB.
// Size implements the value interface of cobra's flags.
type Size uint64

// Set parses a size.
func (s *Size) Set(text string) error {
	n, err := parseSize(text)
	if err == nil {
		*s = Size(n)
	}
	return err
}

// String returns the size in the largest unit that gives a whole number.
func (s *Size) String() string { return formatSize(uint64(*s)) }

// Type returns the name of the value in help texts.
func (*Size) Type() string { return "size" }
