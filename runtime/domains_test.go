package runtime_test

import (
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
)

// domainsPolicy gives the identities of two trust domains the roles of both sides.
const domainsPolicy = `identities:
  - {name: spiffe://fleet/*/*, roles: [prefill, decode]}
  - {name: spiffe://other/*/*, roles: [prefill, decode]}
`

// Two prefill nodes of two trust domains send chunks with the same keys. An engine gets those of its own domain, or those
// of the domain that it states, by Get and by Fetch, whether the chunks are pushed or offered.
func TestDomainIsStated(t *testing.T) {
	for name, offers := range map[string]bool{"pushed": false, "offered": true} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, domainsPolicy)
			sender, receiver := senderConfig, receiverConfig(t, "tcp", nil)
			if offers {
				sender, receiver = pullSenderConfig, delayedConfig(t, "tcp", 4)
			}
			r := open(t, f.secured(receiver, "decode/1"))
			keys := keysOf("same", 2)
			content := map[string][]string{"spiffe://other": keysOf("theirs", 2), "": keysOf("ours", 2)}
			for domain, identity := range map[string]string{"spiffe://other": "spiffe://other/prefill/1", "": "prefill/1"} {
				s := open(t, f.secured(sender(t, "tcp", effects.Addr{}), identity))
				pages := mustReserve(t, s, 2)
				fill(t, pages, content[domain])
				if _, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Request: "r", Keys: keys, Pages: pages}); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					mustRelease(t, pages)
					mustClose(t, s)
				})
			}
			for domain, want := range content {
				if hits, err := r.Receiver().ContainsOf(within(t), domain, keys); err != nil || hits != 2 {
					t.Errorf("Contains of domain %q: %d, %v", domain, hits, err)
				}
				if offers {
					taken, err := r.Receiver().Fetch(within(t), runtime.Fetch{Request: "r", Keys: keys, Domain: domain, Timeout: limit,
						Scatter: (&device{tb: t, keys: want}).scatter})
					if err != nil || taken != 2 {
						t.Errorf("Fetch of domain %q: %d, %v", domain, taken, err)
					}
					continue
				}
				got, err := r.Receiver().Get(within(t), runtime.Get{Request: "r", Keys: keys, Domain: domain})
				if err != nil {
					t.Fatalf("Get of domain %q: %v", domain, err)
				}
				wantContent(t, got, want, pageBytes)
				mustRelease(t, got)
			}
			if hits, err := r.Receiver().ContainsOf(within(t), "unproven", keys); err != nil || hits != 0 {
				t.Errorf("Contains of peers without an identity: %d, %v", hits, err)
			}
			mustClose(t, r)
		})
	}
}

// A domain that a node cannot tell from its own, or that is misspelled, is refused with the remedy.
func TestDomainIsRefused(t *testing.T) {
	f := newFleet(t, domainsPolicy)
	for domain, cfg := range map[string]*config.Config{
		"spiffe://other": receiverConfig(t, "tcp", nil), "other": f.secured(receiverConfig(t, "tcp", nil), "decode/1"),
	} {
		r := open(t, cfg)
		_, got := r.Receiver().Get(within(t), runtime.Get{Keys: keysOf("a", 1), Domain: domain})
		_, fetched := r.Receiver().Fetch(within(t), runtime.Fetch{Keys: keysOf("a", 1), Domain: domain, Scatter: failingScatter(t)})
		_, counted := r.Receiver().ContainsOf(within(t), domain, keysOf("a", 1))
		for _, err := range []error{got, fetched, counted} {
			if runtime.CodeOf(err) != effects.Invalid || !strings.Contains(err.Error(), "Domain") || !strings.Contains(err.Error(), domain) {
				t.Errorf("domain %q: %v", domain, err)
			}
		}
		mustClose(t, r)
	}
}
