/** The navigation: sections of views, with their places and keys. */
import { features, hasSecrets } from './session.ts'

export interface Section {
  readonly title: string
  /** What needs a login, as in "Log in to see hosts". */
  readonly subject: string
  /** Other words for which the command palette finds it. */
  readonly keywords?: string
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
  { title: 'Logs', subject: 'logs', path: '/logs', key: 'l', group: 'Hosts', isAvailable: hasHosts },
  {
    title: 'Hosts',
    subject: 'hosts',
    keywords: 'nodes disk memory cpu',
    path: '/hosts',
    key: 'h',
    group: 'Hosts',
    isAvailable: hasHosts,
  },
  { title: 'Files', subject: 'files', path: '/files', key: 'f', group: 'Hosts', isAvailable: hasHosts },
  {
    title: 'Secrets',
    subject: 'secrets',
    path: '/secrets',
    key: 's',
    group: 'Secrets',
    isAvailable: () => hasSecrets.value,
  },
  {
    title: 'Policies',
    subject: 'policies',
    path: '/policies',
    key: 'p',
    group: 'Secrets',
    isAvailable: () => hasSecrets.value,
  },
  {
    title: 'Access',
    subject: 'tokens and other access',
    path: '/access',
    key: 'a',
    group: 'Secrets',
    isAvailable: () => hasSecrets.value,
  },
  {
    title: 'TOTP',
    subject: 'TOTP keys and methods',
    path: '/totp',
    key: 't',
    group: 'Secrets',
    isAvailable: () => hasSecrets.value,
  },
  {
    title: 'Cloud',
    subject: 'cloud engines',
    path: '/cloud',
    key: 'c',
    group: 'Secrets',
    isAvailable: () => hasSecrets.value,
  },
  {
    title: 'Replication',
    subject: 'the replication',
    keywords: 'dr disaster recovery failover',
    path: '/dr',
    key: 'd',
    group: 'System',
    isAvailable: () => hasSecrets.value,
  },
  { title: 'Seal', subject: 'the seal', path: '/seal', key: 'u', group: 'System', isAvailable: () => hasSecrets.value },
  {
    title: 'Status',
    subject: 'the status',
    keywords: 'health readiness high availability',
    path: '/status',
    key: 'o',
    group: 'System',
    isAvailable: always,
  },
]
