package runtime_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/secure"
	"github.com/kvferry/kvferry/runtime/secure/authority"
)

// A fleet issues certificates under a policy.
type fleet struct {
	testing.TB
	*authority.Authority
	policy  string
	folders map[string]string // by identity
}

func newFleet(tb testing.TB, policy string) *fleet {
	tb.Helper()
	a, err := authority.New(time.Hour, time.Now)
	if err != nil {
		tb.Fatal(err)
	}
	return &fleet{tb, a, policy, map[string]string{}}
}

// folderOf returns the folder with the files of an identity, which is in the trust domain fleet unless it is a whole URI.
func (f *fleet) folderOf(identity string) string {
	f.Helper()
	if f.folders[identity] == "" {
		f.folders[identity] = f.TempDir()
		whole := identity
		if !strings.Contains(identity, "://") {
			whole = "spiffe://fleet/" + identity
		}
		if err := f.WriteFolder(f.folders[identity], whole, []byte(f.policy)); err != nil {
			f.Fatal(err)
		}
	}
	return f.folders[identity]
}

// secured makes a configuration strict, with the files of an identity.
func (f *fleet) secured(cfg *config.Config, identity string) *config.Config {
	f.Helper()
	in := func(name string) string { return filepath.Join(f.folderOf(identity), name) }
	cfg.Security = config.Security{Mode: secure.Strict, Cert: in(authority.CertFile), Key: in(authority.KeyFile),
		CA: in(authority.CAFile), Policy: in(authority.PolicyFile)}
	return cfg
}
