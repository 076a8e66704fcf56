package secure

import (
	"fmt"
	"log/slog"
	"net/netip"
	"time"
)

// A Mode says whether connections are authenticated.
type Mode uint8

// The modes; the package comment describes them.
const (
	Off Mode = iota
	Permissive
	Strict
)

// modeNames are the names of the modes in configurations.
//
//kvferry:table
var modeNames = [...]string{"off", "permissive", "strict"}

// String returns the mode's name in configurations.
func (m Mode) String() string { return modeNames[m] }

// ModeNamed returns the mode with a name, and reports false if there is none.
func ModeNamed(name string) (Mode, bool) {
	for m, n := range modeNames {
		if n == name {
			return Mode(m), true
		}
	}
	return Off, false
}

const (
	// defaultRecheck is the time between two looks at the files.
	defaultRecheck = 10 * time.Second
	// ExpiryGrace is how long a connection outlasts the end of the certificate that its peer showed.
	ExpiryGrace = 5 * time.Minute
	// maxFileBytes limits the size of a file with certificates or a key.
	maxFileBytes = 1 << 20
)

// Config names the files of a Guard.
type Config struct {
	Mode Mode
	// Cert and Key are PEM files: the process's certificate, with any intermediate certificates, and the private key.
	// CA is a PEM file with the certificates of the authorities whose certificates are trusted. Policy is a YAML file;
	// see [ParsePolicy]. All four are required unless Mode is Off.
	Cert, Key, CA, Policy string
	// ProvenChunks says that peers without a certificate touch only chunks of the default tenant, and that their chunks are
	// not in this node's trust domain. It matters in mode Permissive alone: Off proves nothing, and Strict always treats
	// such peers so, where it accepts them (Plain).
	ProvenChunks bool
	// Plain are networks from which mode Strict accepts control connections without TLS, for peers that have none, such as
	// unmodified engines. Such a peer may do what engines do (RolePrefill and RoleDecode) with chunks of the default
	// tenant, and is in no trust domain. It matters in mode Strict alone.
	Plain []netip.Prefix
	// Recheck is the time between two looks at the files; default 10 s. The files are compared by content, because
	// mounted secrets change by a symbolic link.
	Recheck time.Duration
	// Now returns the time of day, by which certificates are valid; default time.Now.
	Now func() time.Time
	// Log receives renewals and refused peers; default slog.Default.
	Log *slog.Logger
}

// checkFiles returns an error that names the first file that is missing in the configuration, or that has no meaning.
func (c *Config) checkFiles() error {
	for _, f := range []struct{ key, path string }{
		{"security.cert", c.Cert}, {"security.key", c.Key}, {"security.ca", c.CA}, {"security.policy", c.Policy},
	} {
		switch {
		case c.Mode != Off && f.path == "":
			return fmt.Errorf("%s names no file, and security.mode is %s: give the path of a file (kvferry certs makes all four)",
				f.key, c.Mode)
		case c.Mode == Off && f.path != "":
			return fmt.Errorf("%s names the file %s, and security.mode is off: set security.mode to permissive or strict, or remove %[1]s",
				f.key, f.path)
		}
	}
	return nil
}
