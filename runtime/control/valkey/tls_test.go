package valkey_test

import (
	"strings"
	"testing"

	"github.com/kvferry/kvferry/runtime/control/valkey"
	"github.com/kvferry/kvferry/runtime/control/valkey/valkeytest"
)

func TestFilesOfTLS(t *testing.T) {
	r := valkeytest.NewKeyFiles(t)
	for name, c := range map[string]struct{ ca, cert, key, says string }{
		"none":              {},
		"all":               {r.CA, r.Cert, r.Key, ""},
		"no such file":      {r.CA + "x", "", "", "directory.log_ca"},
		"a key":             {r.Key, "", "", "directory.log_ca: " + r.Key},
		"half":              {"", r.Cert, "", "give both or neither"},
		"the other way":     {"", r.Key, r.Cert, "directory.log_cert " + r.Key},
		"another's key":     {"", r.CA, r.Key, "directory.log_key " + r.Key},
		"a file of nothing": {"", r.Cert, "/dev/null", "directory.log_key /dev/null"},
	} {
		switch tls, err := valkey.TLSConfig(c.ca, c.cert, c.key); {
		case c.says == "" &&
			(err != nil || (tls.RootCAs == nil) != (c.ca == "") || (len(tls.Certificates) == 0) != (c.cert == "")):
			t.Errorf("%s: %+v, %v", name, tls, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}
