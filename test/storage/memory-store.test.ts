/** The store that other rooms' tests fail on demand keeps the real one's promises. */
import { MemoryStore } from '../helpers/memory-store.ts'
import { storeContract } from './contract.ts'

storeContract('memory', () => Promise.resolve(new MemoryStore()))
