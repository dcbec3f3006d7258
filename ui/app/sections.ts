/** The navigation: sections of views, with their places and keys. */
import { features, hasSecrets } from './session.ts'

export interface Section {
  readonly title: string
  readonly path: string
  /** Second key of `g`. */
  readonly key: string
  readonly group: 'Hosts' | 'Secrets' | 'System'
  readonly isAvailable: () => boolean
}

const always = () => true
const hasHosts = () => features.value !== undefined

/** The navigation, in order. */
export const SECTIONS: readonly Section[] = [
  { title: 'Logs', path: '/logs', key: 'l', group: 'Hosts', isAvailable: hasHosts },
  { title: 'Hosts', path: '/hosts', key: 'h', group: 'Hosts', isAvailable: hasHosts },
  { title: 'Files', path: '/files', key: 'f', group: 'Hosts', isAvailable: hasHosts },
  { title: 'Secrets', path: '/secrets', key: 's', group: 'Secrets', isAvailable: () => hasSecrets.value },
  { title: 'Policies', path: '/policies', key: 'p', group: 'Secrets', isAvailable: () => hasSecrets.value },
  { title: 'Access', path: '/access', key: 'a', group: 'Secrets', isAvailable: () => hasSecrets.value },
  { title: 'TOTP', path: '/totp', key: 't', group: 'Secrets', isAvailable: () => hasSecrets.value },
  { title: 'Cloud', path: '/cloud', key: 'c', group: 'Secrets', isAvailable: () => hasSecrets.value },
  { title: 'Replication', path: '/dr', key: 'd', group: 'System', isAvailable: () => hasSecrets.value },
  { title: 'Seal', path: '/seal', key: 'u', group: 'System', isAvailable: () => hasSecrets.value },
  { title: 'Status', path: '/status', key: 'o', group: 'System', isAvailable: always },
]
