package main

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/effects"
)

// maxSaltBytes limits the salt that kvferry tenant reads.
const maxSaltBytes = 64 << 10

func newTenantCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "tenant",
		Short: "Print the tenant of a cache salt",
		Long: `tenant reads a cache salt from standard input and prints its tenant: 16 hex digits, which the
keys of chunks and the policy of security contain instead of the salt. Requests with this
cache_salt belong to this tenant. A newline at the end of the input is not a part of the salt.

Use long random salts. Whoever sees a key can try guesses of the salt against its tenant.`,
		Example: `  printf %s "$SALT" | kvferry tenant
  kvferry tenant --json < salt.txt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			salt, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxSaltBytes+1))
			if err != nil {
				return err
			}
			salt = bytes.TrimSuffix(bytes.TrimSuffix(salt, []byte("\n")), []byte("\r"))
			switch {
			case len(salt) > maxSaltBytes:
				return usagef("the salt has more than %d bytes; use a shorter one", maxSaltBytes)
			case len(salt) == 0:
				return usagef("standard input is empty, and requests without a salt belong to the tenant default; give the salt")
			}
			tenant := effects.TenantOfSalt(string(salt)).String()
			if asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]string{"tenant": tenant})
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), tenant)
			return err
		},
	}
	addJSONFlag(cmd, &asJSON)
	return cmd
}
