/** What the parts of the view of a secret share. */
import type { Capability } from '../../../api/capabilities.ts'
import type { SecretChange } from './changes.ts'
import type { SecretData } from '../secret-data.ts'
import type { KvArea, KvMount } from '../secret-path.ts'
import type { SecretMetadata } from './versions.ts'

export type Removal =
  | { readonly kind: 'current' }
  | { readonly kind: 'destroy'; readonly version: number }
  | { readonly kind: 'all' }

/** The version that is changed. */
export interface EditBase {
  /** 0 for a new secret. Undefined if it is not known: then the write is not checked. */
  readonly version: number | undefined
  readonly data: SecretData
  /** False if the token may write but not read. */
  readonly isKnown: boolean
}

export interface SecretContext {
  readonly mount: KvMount
  readonly name: string
  readonly may: (area: KvArea, capability: Capability) => boolean
  /** False until the server has answered what the token may do. */
  readonly isMayKnown: boolean
  /** Undefined without versions, without a secret, and if the token may not read it. */
  readonly metadata: SecretMetadata | undefined
  /** Changes with each reload. */
  readonly revision: number
  readonly reload: () => void
  /** Runs a change of this page, which is then not announced as one by others. */
  readonly act: (change: SecretChange['change'], run: () => Promise<void>) => Promise<void>
  /** Called with the version that the draft of the editor is based on. */
  readonly edits: (base: number | undefined) => void
  readonly remove: (removal: Removal) => void
}
