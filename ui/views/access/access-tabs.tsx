import { path } from '../../app/location.ts'
import { Tabs } from '../../components/tabs.tsx'

const TABS = [
  { title: 'Tokens', to: '/access/tokens' },
  { title: 'Leases', to: '/access/leases' },
  { title: 'Identity', to: '/access/identity' },
  { title: 'Auth methods', to: '/access/auth' },
]

/** The tabs of all lists of Access. */
export function AccessTabs() {
  const at = path.value === '/access' ? '/access/tokens' : path.value
  const isCurrent = (to: string) => at === to || at.startsWith(`${to}/`)
  return <Tabs label="Access" tabs={TABS.map((tab) => ({ ...tab, isCurrent: isCurrent(tab.to) }))} />
}
