/** The policies that every core has from its beginning, and the names that are not for everybody. */

const DEFAULT = `# What every token may do that is not made without this policy.

# Look at, renew and revoke itself
path "auth/token/lookup-self" {
  capabilities = ["read"]
}
path "auth/token/renew-self" {
  capabilities = ["update"]
}
path "auth/token/revoke-self" {
  capabilities = ["update"]
}

# Ask what it may do
path "sys/capabilities-self" {
  capabilities = ["update"]
}
path "sys/internal/ui/resultant-acl" {
  capabilities = ["read"]
}

# Read its own entity
path "identity/entity/id/{{identity.entity.id}}" {
  capabilities = ["read"]
}
path "identity/entity/name/{{identity.entity.name}}" {
  capabilities = ["read"]
}

# Renew and look up leases whose IDs it knows; sys/renew is what old clients ask
path "sys/renew" {
  capabilities = ["update"]
}
path "sys/leases/renew" {
  capabilities = ["update"]
}
path "sys/leases/lookup" {
  capabilities = ["update"]
}

# Keep things in its own cubbyhole
path "cubbyhole/*" {
  capabilities = ["create", "read", "update", "delete", "list"]
}

# Wrap values, look at wrapping tokens and unwrap what they hold
path "sys/wrapping/wrap" {
  capabilities = ["update"]
}
path "sys/wrapping/lookup" {
  capabilities = ["update"]
}
path "sys/wrapping/unwrap" {
  capabilities = ["update"]
}

# Hash values
path "sys/tools/hash" {
  capabilities = ["update"]
}
path "sys/tools/hash/*" {
  capabilities = ["update"]
}

# Authorise at an OIDC provider
path "identity/oidc/provider/+/authorize" {
  capabilities = ["read", "update"]
}
`

const RESPONSE_WRAPPING = `# What a wrapping token may do, once.
path "cubbyhole/response" {
  capabilities = ["create", "read"]
}
path "sys/wrapping/unwrap" {
  capabilities = ["update"]
}
`

export const DEFAULT_POLICIES: Readonly<Record<string, string>> = {
  default: DEFAULT,
  'response-wrapping': RESPONSE_WRAPPING,
}

/** Nobody writes or deletes these. */
export const FIXED_NAMES: ReadonlySet<string> = new Set(['root', 'response-wrapping'])

/** No list shows these, and no token is made with them on request. */
export const HIDDEN_NAMES: ReadonlySet<string> = new Set(['response-wrapping'])
