/**
 * The version that clients are told. Clients that support several releases of Vault decide by `version` what to send:
 * Terraform's provider manages static roles of the AWS engine only from 1.14.0 on. The number therefore names the API that
 * this program is compatible with, and must be a semantic version.
 */

/** The release of Vault whose command and API the tests are made against. Raise it together with them. */
const API_VERSION = '1.21.4'

/** `programVersion` is that of this program. */
export function versionFacts(programVersion: string): { readonly version: string; readonly outpost_version: string } {
  return { version: API_VERSION, outpost_version: programVersion }
}
