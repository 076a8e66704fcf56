package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/secure/authority"
)

func newCertsCommand() *cobra.Command {
	var out, domain string
	var life time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "certs ROLE/NAME...",
		Short: "Make certificates to try security with",
		Long: `certs makes an authority, and a certificate for each ROLE/NAME. The folder OUT/ROLE/NAME, for
the key security.dir, has tls.crt, tls.key, ca.crt and policy.yaml. The identity is
spiffe://DOMAIN/ROLE/NAME, and the policy gives each identity the role in its name. The roles are prefill, decode,
directory, proxy and operator; both is for a node with pd_role: both.

The authority's key is not kept, so a later run makes certificates that the files of an
earlier run do not trust: give all names at once. A folder that exists is refused.

The certificates are for trying, tests and development. In production use an authority that
renews certificates, such as cert-manager or SPIRE; their files serve as well.`,
		Example: `  kvferry certs --out certs prefill/a decode/b
  kvferry certs --out certs --domain fleet.example --life 168h prefill/0 prefill/1 decode/0 directory/0 --json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			folders := map[string]string{}
			for _, arg := range args {
				role, name, ok := strings.Cut(arg, "/")
				if _, isRole := effects.RoleNamed(role); !ok || name == "" || strings.ContainsAny(name, "/*. ") || !isRole && role != "both" {
					return usagef("%q is not ROLE/NAME: the roles are %s and both, and a name has no slash, dot, space or *", arg,
						effects.RoleNames())
				}
				folders[arg] = filepath.Join(out, role, name)
			}
			for _, folder := range folders {
				if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
					return usagef("--out: %s exists already; remove it, or give another folder", folder)
				}
			}
			a, err := authority.New(life, time.Now)
			if err != nil {
				return usageError{err}
			}
			type made struct {
				Identity string `json:"identity"`
				Folder   string `json:"folder"`
			}
			var all []made
			for _, arg := range args {
				m := made{"spiffe://" + domain + "/" + arg, folders[arg]}
				if err := a.WriteFolder(m.Folder, m.Identity, authority.FleetPolicy(domain)); err != nil {
					return err
				}
				all = append(all, m)
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]any{"certificates": all})
			}
			for _, m := range all {
				fmt.Fprintf(cmd.OutOrStdout(), "%s  %s\n", m.Folder, m.Identity)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&out, "out", "certs", "the folder in which a folder for each name is made")
	cmd.Flags().StringVar(&domain, "domain", "kvferry.test", "the trust domain of the identities")
	cmd.Flags().DurationVar(&life, "life", 90*24*time.Hour, "how long the certificates are valid")
	addJSONFlag(cmd, &asJSON)
	return cmd
}
