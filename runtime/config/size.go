package config

// A Size is a number of bytes as the flag of a command, written as the keys of a file are: 64MiB. It is what
// the flags of cobra take for a value.
type Size uint64

// Set reads a size.
func (s *Size) Set(text string) error {
	n, err := parseSize(text)
	if err == nil {
		*s = Size(n)
	}
	return err
}

// String writes it with the largest unit that leaves it whole.
func (s *Size) String() string { return formatSize(uint64(*s)) }

// Type is what help calls the value.
func (*Size) Type() string { return "size" }
